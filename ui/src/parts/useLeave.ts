import { createContext, useContext } from "react";

/** Leaves the dialog around a component. */
export const LeaveContext = createContext<() => void>(() => undefined);

export function useLeave(): () => void {
  return useContext(LeaveContext);
}

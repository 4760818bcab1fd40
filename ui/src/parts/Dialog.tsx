import { type ReactNode, useCallback, useEffect, useId, useRef } from "react";

import { LeaveContext } from "./useLeave";

interface Props {
  readonly title: string;
  /** It was left, by Escape or by `useLeave` of what is in it. */
  readonly closed: () => void;
  readonly children: ReactNode;
}

/** What has to be answered before somebody goes on. The focus is in it, and goes back to where it was. */
export function Dialog({ title, closed, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const name = useId();
  const leave = useCallback(() => {
    dialog.current?.close();
  }, []);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  return (
    <dialog ref={dialog} className="action" aria-labelledby={name} onClose={closed}>
      <h2 id={name}>{title}</h2>
      <LeaveContext value={leave}>{children}</LeaveContext>
    </dialog>
  );
}

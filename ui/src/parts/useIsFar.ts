import { useStore } from "@xyflow/react";

/** Below this zoom nobody can read a name of twelve pixels. */
const LEGIBLE = 0.4;

/**
 * The graph is looked at from so far that its texts cannot be read: then it has none, and nothing in it moves. Hundreds of
 * labels that are measured and of lines that are painted again all the time would leave the page no time for anything else.
 */
export function useIsFar(): boolean {
  return useStore(({ transform: [, , zoom] }) => zoom < LEGIBLE);
}

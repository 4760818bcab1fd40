import type { DiskShown } from "../api/schema";
import type { Tone } from "./states";

const SCARCE = 0.1;
const FULL = 0.02;

/** How much room a disk has: `part` of it is free, 0 to 1. */
export type RoomState =
  { readonly is: "unknown" } | { readonly is: "enough" | "scarce" | "full"; readonly part: number };

/** A figure that nobody knows is not zero: object stores have none. */
export function roomOf({ free_bytes: free, total_bytes: total }: DiskShown): RoomState {
  if (free === null || total === null || !Number.isFinite(free) || !Number.isFinite(total)) {
    return { is: "unknown" };
  }
  if (total <= 0 || free < 0) return { is: "unknown" };
  const part = free / total;
  return { is: part < FULL ? "full" : part < SCARCE ? "scarce" : "enough", part };
}

export function toneOfRoom({ is }: RoomState): Tone {
  switch (is) {
    case "full":
      return "bad";
    case "scarce":
      return "warn";
    case "enough":
      return "good";
    case "unknown":
      return "quiet";
  }
}

export function nameOfDisk(what: DiskShown["what"]): string {
  switch (what) {
    case "checkpoints":
      return "Checkpoints";
    case "savepoints":
      return "Savepoints";
    case "jobs":
      return "Submitted jobs, for the next leader";
    case "master":
      return "Folder of this master";
  }
}

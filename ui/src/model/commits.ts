import type { JobCommits, SinkCommits } from "../api/schema";

/** What of a sink waits for its commit. */
export type Waiting =
  | { readonly kind: "never" }
  | { readonly kind: "nothing" }
  | { readonly kind: "unknown" }
  | {
      readonly kind: "waits";
      readonly committables: number;
      readonly bytes: number;
      readonly sinceMs: number | null;
    };

export function waitingOf({ plain, staged }: Pick<SinkCommits, "plain" | "staged">): Waiting {
  if (plain) return { kind: "never" };
  if (staged === null) return { kind: "unknown" };
  if (staged.length === 0) return { kind: "nothing" };
  const known = staged.flatMap(({ since_ms }) => (since_ms === null ? [] : [since_ms]));
  return {
    kind: "waits",
    committables: staged.reduce((sum, one) => sum + one.committables, 0),
    bytes: staged.reduce((sum, one) => sum + one.size, 0),
    sinceMs: known.length === 0 ? null : Math.min(...known),
  };
}

const DATES_MS = 8.64e15; // of ECMAScript, on both sides of 1970

/** A watermark that is a time; "end" behind the last row, null before the first, or if nobody knows it. */
export function momentOf(watermarkMs: number | null): number | "end" | null {
  if (watermarkMs === null || watermarkMs < -DATES_MS) return null;
  return watermarkMs > DATES_MS ? "end" : watermarkMs;
}

/** What is in no commit yet, in a sentence; null where no sink commits. */
export function notYet({ checkpoint_id, taken_ms, now_ms, sinks }: JobCommits, runs: boolean): string | null {
  if (!runs || (sinks.length > 0 && sinks.every(({ plain }) => plain))) return null;
  if (checkpoint_id === null || taken_ms === null) {
    return "There is no complete checkpoint yet, so nothing is committed.";
  }
  const seconds = Math.max(0, Math.round((now_ms - taken_ms) / 1000));
  const ago = Number.isFinite(seconds) ? `, ${String(seconds)} s ago,` : "";
  return `Rows that came after checkpoint ${checkpoint_id}${ago} are in no commit yet.`;
}

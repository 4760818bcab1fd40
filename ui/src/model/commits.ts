import type { JobCommits, SinkCommits } from "../api/schema";

/** What of a sink waits for its commit. */
export type Waiting =
  | { readonly kind: "nothing" }
  | { readonly kind: "unknown" }
  | {
      readonly kind: "waits";
      readonly committables: number;
      readonly bytes: number;
      readonly sinceMs: number | null;
    };

export function waitingOf({ staged }: Pick<SinkCommits, "staged">): Waiting {
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

const LAST_DATE_MS = 8.64e15; // of ECMAScript; a watermark of 2^63 - 1 is behind the last row

/** A watermark after which no row comes. */
export function isEnd(watermarkMs: number | null): boolean {
  return watermarkMs !== null && watermarkMs > LAST_DATE_MS;
}

/** What is in no commit yet, in a sentence. */
export function notYet({ checkpoint_id, taken_ms, now_ms }: JobCommits, runs: boolean): string | null {
  if (!runs) return null;
  if (checkpoint_id === null || taken_ms === null) {
    return "There is no complete checkpoint yet, so nothing is committed.";
  }
  const seconds = Math.max(0, Math.round((now_ms - taken_ms) / 1000));
  return `Rows that came after checkpoint ${checkpoint_id}, ${seconds} s ago, are in no commit yet.`;
}

import type { LiveStatus } from "../api/live";

export const STALE_MS = 5_000;

/** What the page says of the age of all that it shows. */
export type Freshness =
  | { readonly kind: "connecting" }
  | { readonly kind: "live" }
  | { readonly kind: "polled" }
  | { readonly kind: "stale"; readonly sinceMs: number; readonly why: string };

const AWAY = "The JobManager does not answer. It may have ended, or another one leads now.";
const HANGS =
  "The JobManager answers, but cannot look at something that is shown here: a job may be too busy.";

/** `nowMs`: by the clock of this browser, as the times of the status are. */
export function freshnessOf(status: LiveStatus, nowMs: number): Freshness {
  const { heardMs, shownMs, lateSinceMs, polls, phase, trouble } = status;
  if (phase === "hidden") return { kind: "connecting" };
  if (nowMs - Math.max(heardMs ?? 0, shownMs) > STALE_MS) {
    return heardMs === null
      ? { kind: "connecting" }
      : { kind: "stale", sinceMs: heardMs, why: trouble ?? AWAY };
  }
  if (lateSinceMs !== null && phase === "open") return { kind: "stale", sinceMs: lateSinceMs, why: HANGS };
  if (polls) return { kind: "polled" };
  return phase === "open" ? { kind: "live" } : { kind: "connecting" };
}

/** The sentence about a server that is of another version than the page; null: it is not, or nobody knows. */
export function otherVersion(page: string | null, server: string | null): string | null {
  if (page === null || server === null || page === server) return null;
  return `The JobManager is of version ${server} now, and this page of ${page}.`;
}

/** Nothing of a new stream for so long: what is between keeps it back. The server beats every two seconds. */
export const FIRST_MS = 6_000;
/** The same of one that has begun. */
export const SILENT_MS = 6_000;
/** How long each answer is asked for by itself, before a stream is tried again. */
export const POLLED_MS = 30_000;
/** A stream that has gone on for so long is a good one. */
export const GOOD_MS = 30_000;

const BACKOFF_MS = [250, 500, 1_000, 2_000, 5_000] as const;
const SILENCES_MAX = 2;

/** The one stream of a page. Times are of a clock that never goes back. */
export interface Connection {
  readonly phase: "hidden" | "connecting" | "open" | "waiting";
  /** When it came into this phase, and when something came last. */
  readonly sinceMs: number;
  readonly heardMs: number;
  /** When a waiting one tries again. */
  readonly retryMs: number;
  readonly failures: number;
  readonly silences: number;
  /** Each answer is asked for by itself: no stream gets through, or the server gives none. */
  readonly polls: boolean;
}

export type Happening = "shown" | "hidden" | "heard" | "ended" | "refused" | "other topics" | "tick";

/** What is to be done with the request. */
export type Act = "open" | "close" | null;

export const NOT_SHOWN: Connection = {
  phase: "hidden",
  sinceMs: 0,
  heardMs: 0,
  retryMs: 0,
  failures: 0,
  silences: 0,
  polls: false,
};

/** `chance`: 0 to 1; many pages do not come back to a server at the same time. */
export function after(
  connection: Connection,
  happening: Happening,
  nowMs: number,
  chance: number,
): [Connection, Act] {
  const { phase } = connection;
  if (happening === "hidden")
    return [{ ...connection, phase: "hidden", sinceMs: nowMs, polls: false }, "close"];
  if (happening === "shown") return phase === "hidden" ? opened(connection, nowMs) : [connection, null];
  if (phase === "hidden") return [connection, null];
  switch (happening) {
    case "heard":
      return [heard(connection, nowMs), null];
    case "ended": {
      const backoffMs = BACKOFF_MS[Math.min(connection.failures, BACKOFF_MS.length - 1)] ?? 0;
      const retryMs = nowMs + backoffMs * (0.5 + chance / 2);
      return [{ ...waiting(connection, nowMs, retryMs), failures: connection.failures + 1 }, null];
    }
    case "refused":
      return [{ ...waiting(connection, nowMs, nowMs + POLLED_MS), polls: true }, null];
    case "other topics":
      return opened(connection, nowMs);
    case "tick":
      return ticked(connection, nowMs);
  }
}

function ticked(connection: Connection, nowMs: number): [Connection, Act] {
  const { phase, sinceMs, heardMs, retryMs, silences } = connection;
  switch (phase) {
    case "hidden":
      return [connection, null];
    case "waiting":
      return nowMs >= retryMs ? opened(connection, nowMs) : [connection, null];
    case "connecting":
      return nowMs - sinceMs > FIRST_MS ? polled(connection, nowMs) : [connection, null];
    case "open": {
      if (nowMs - heardMs <= SILENT_MS) return [connection, null];
      const again = { ...connection, silences: heardMs - sinceMs > GOOD_MS ? 1 : silences + 1 };
      return again.silences < SILENCES_MAX ? opened(again, nowMs) : polled({ ...again, silences: 0 }, nowMs);
    }
  }
}

function heard(connection: Connection, nowMs: number): Connection {
  const sinceMs = connection.phase === "open" ? connection.sinceMs : nowMs;
  return { ...connection, phase: "open", sinceMs, heardMs: nowMs, failures: 0, polls: false };
}

function opened(connection: Connection, nowMs: number): [Connection, Act] {
  return [{ ...connection, phase: "connecting", sinceMs: nowMs }, "open"];
}

function polled(connection: Connection, nowMs: number): [Connection, Act] {
  return [{ ...waiting(connection, nowMs, nowMs + POLLED_MS), polls: true }, "close"];
}

function waiting(connection: Connection, nowMs: number, retryMs: number): Connection {
  return { ...connection, phase: "waiting", sinceMs: nowMs, retryMs };
}

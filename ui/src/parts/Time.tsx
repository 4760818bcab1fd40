import { UNKNOWN } from "../format/numbers";
import { duration, localTime, since, utcTime } from "../format/times";

/** A moment in the zone of the browser; UTC when one points at it. */
export function Time({ ms }: { ms: number | null | undefined }) {
  if (ms === null || ms === undefined) return <span className="quiet">{UNKNOWN}</span>;
  return (
    <time dateTime={new Date(ms).toISOString()} title={utcTime(ms)}>
      {localTime(ms)}
    </time>
  );
}

/** How long ago a moment was, by the server's clock. */
export function Ago({ ms, nowMs }: { ms: number | null | undefined; nowMs: number | null }) {
  if (ms === null || ms === undefined) return <span className="quiet">{UNKNOWN}</span>;
  return (
    <time dateTime={new Date(ms).toISOString()} title={utcTime(ms)}>
      {duration(since(ms, nowMs))} ago
    </time>
  );
}

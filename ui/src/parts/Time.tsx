import { memo } from "react";

import { UNKNOWN } from "../format/numbers";
import { duration, isMoment, localTime, since, utcTime } from "../format/times";

/** A moment in the zone of the browser; UTC when one points at it. Remembered: a zone is asked for each. */
export const Time = memo(function Time({ ms }: { ms: number | null | undefined }) {
  if (ms === null || ms === undefined || !isMoment(ms)) return <span className="quiet">{UNKNOWN}</span>;
  return (
    <time dateTime={new Date(ms).toISOString()} title={utcTime(ms)}>
      {localTime(ms)}
    </time>
  );
});

/** How long ago a moment was, by the server's clock. */
export function Ago({ ms, nowMs }: { ms: number | null | undefined; nowMs: number | null }) {
  return <Since ms={ms} age={duration(since(ms ?? null, nowMs))} />;
}

/** The same, of an age that is known as a text. */
export function Since({ ms, age }: { ms: number | null | undefined; age: string }) {
  if (ms === null || ms === undefined || !isMoment(ms)) return <span className="quiet">{UNKNOWN}</span>;
  return (
    <time dateTime={new Date(ms).toISOString()} title={utcTime(ms)}>
      {age} ago
    </time>
  );
}

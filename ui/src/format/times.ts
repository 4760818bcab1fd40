import { UNKNOWN } from "./numbers";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Two parts at most, the largest first: `3 d 4 h`, `12 min 5 s`, `850 ms`. */
export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return UNKNOWN;
  if (ms < 0) return `−${duration(-ms)}`;
  if (ms < SECOND) return `${Math.round(ms)} ms`;
  if (ms < MINUTE) return `${(Math.floor(ms / 100) / 10).toString()} s`;
  const [unit, size, below, part] =
    ms < HOUR
      ? (["min", MINUTE, "s", SECOND] as const)
      : ms < DAY
        ? (["h", HOUR, "min", MINUTE] as const)
        : (["d", DAY, "h", HOUR] as const);
  const rest = Math.floor((ms % size) / part);
  return `${Math.floor(ms / size)} ${unit}${rest > 0 ? ` ${rest} ${below}` : ""}`;
}

const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** What a browser can show as a time; a watermark at the end of a stream is none. */
const MOMENT_MS = 8.64e15;

export function isMoment(ms: number): boolean {
  return Math.abs(ms) <= MOMENT_MS;
}

/** In the zone of the browser. */
export function localTime(ms: number): string {
  return isMoment(ms) ? local.format(ms) : UNKNOWN;
}

const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const parts = new Intl.DateTimeFormat(undefined, {
  hour: "numeric",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
});
const day = new Intl.DateTimeFormat(undefined, {
  month: "short",
  day: "numeric",
  hour: "2-digit",
  minute: "2-digit",
});

/** On an axis of so many ms: the time of day, with its day where the axis has several, with parts of a second where it
 * has few. */
export function shortTime(ms: number, ofMs: number): string {
  if (!isMoment(ms)) return UNKNOWN;
  if (ofMs > DAY) return day.format(ms);
  return (ofMs < 10 * SECOND ? parts : clock).format(ms);
}

/** `2026-11-29 14:03:22 UTC`. */
export function utcTime(ms: number): string {
  return isMoment(ms) ? `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC` : UNKNOWN;
}

/** For programs: `2026-11-29T14:03:22.000Z`; null: it is no moment. */
export function isoTime(ms: number): string | null {
  return isMoment(ms) ? new Date(ms).toISOString() : null;
}

/** How long ago a moment was; null where either is not known. A clock that is behind makes no negative time. */
export function since(ms: number | null, nowMs: number | null): number | null {
  return ms === null || nowMs === null ? null : Math.max(0, nowMs - ms);
}

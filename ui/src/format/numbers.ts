const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** What stands where a number is not known: never a zero. */
export const UNKNOWN = "–";

/** All digits, in groups: `1,234,567`. */
export function count(value: number | null | undefined): string {
  return isKnown(value) ? whole.format(value) : UNKNOWN;
}

/** Three digits at most: `1.2M`. */
export function compact(value: number | null | undefined): string {
  return isKnown(value) ? short.format(value) : UNKNOWN;
}

/** Rows in a second: `1.2K/s`. */
export function rate(value: number | null | undefined): string {
  return isKnown(value) ? `${short.format(value)}/s` : UNKNOWN;
}

const BYTES = ["B", "kB", "MB", "GB", "TB", "PB"] as const;

/** `1.5 MB`, as the command line has it. */
export function bytes(value: number | null | undefined): string {
  if (!isKnown(value)) return UNKNOWN;
  let power = 0;
  let scaled = value;
  while (Number(scaled.toFixed(1)) >= 1000 && power < BYTES.length - 1) {
    scaled /= 1000;
    power += 1;
  }
  return `${power === 0 ? scaled.toFixed(0) : scaled.toFixed(1)} ${BYTES[power] ?? "B"}`;
}

/** A part of one: `42 %`. */
export function percent(part: number | null | undefined): string {
  return isKnown(part) ? `${(part * 100).toFixed(0)} %` : UNKNOWN;
}

function isKnown(value: number | null | undefined): value is number {
  return value !== null && value !== undefined && Number.isFinite(value);
}

import { count } from "../format/numbers";
import { duration } from "../format/times";
import { KEPT_MS, OTHER_CLOCK_MS, type Sample } from "./rates";

/** Over a shorter time a trend is noise: workers say how far behind they are each ten seconds. */
export const TREND_MS = 30_000;
/** What is less than this part of what is behind, in a minute, stands still. */
const STILL = 0.02;

/** The samples of a measure that goes up and down, with a new one; none older than five minutes. */
export function measured(
  samples: readonly Sample[],
  next: { readonly atMs: number; readonly value: number | null },
): readonly Sample[] {
  const { atMs, value } = next;
  const last = samples.at(-1);
  if (value === null || !Number.isFinite(value)) return [];
  if (last === undefined || atMs < last.atMs - OTHER_CLOCK_MS) return [{ atMs, value }];
  if (atMs <= last.atMs) return samples;
  return [...samples.filter((sample) => sample.atMs > atMs - KEPT_MS), { atMs, value }];
}

/** Growth in a second from the first sample to the last; null while they are of less than half a minute. */
export function trendOf(samples: readonly Sample[]): number | null {
  const [first, last] = [samples[0], samples.at(-1)];
  if (first === undefined || last === undefined || last.atMs - first.atMs < TREND_MS) return null;
  return ((last.value - first.value) * 1_000) / (last.atMs - first.atMs);
}

/** Whether a job keeps up with what comes in; null: it has nothing to read, or nobody knows. */
export function trendSentence(samples: readonly Sample[]): string | null {
  const [behind, trend] = [samples.at(-1)?.value ?? 0, trendOf(samples)];
  if (behind === 0) return null;
  const now = `${count(behind)} records are not read yet`;
  if (trend === null) return `${now}.`;
  if (Math.abs(trend) * 60 <= Math.max(60, behind * STILL)) return `${now}, about as many as before.`;
  if (trend > 0) return `${now}, ${count(trend)} more each second: it gets worse.`;
  return `${now}, ${count(-trend)} fewer each second: caught up in about ${duration((behind / -trend) * 1_000)}.`;
}

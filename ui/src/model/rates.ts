/** A counter as it was at a time of the server's clock. */
export interface Sample {
  readonly atMs: number;
  readonly value: number;
}

export const KEPT_MS = 300_000;
/** Times that are further back than this are of another clock: another leader's. */
export const OTHER_CLOCK_MS = 10_000;
/** A counter that does not grow for so long stands still: workers send theirs every ten seconds, or more often. */
export const QUIET_MS = 25_000;

const SHORT_MS = 6_500;
/** Three times what workers wait between two reports unless they are configured otherwise. */
const LONG_MS = 30_500;
const RARE_MS = 2_500;
/** Steps of several workers that come one after the other say nothing of a rate. */
const SPAN_MS = 4_000;
const GAPS_MS = 60_000;

/**
 * The samples with a new one, none older than five minutes. A counter that is not known, or has become smaller, and
 * another clock begin again: what grew between is not known.
 */
export function sampled(
  samples: readonly Sample[],
  next: { readonly atMs: number; readonly value: number | null },
): readonly Sample[] {
  const { atMs, value } = next;
  const last = samples.at(-1);
  if (value === null || !Number.isFinite(value)) return [];
  if (last === undefined || atMs < last.atMs - OTHER_CLOCK_MS) return [{ atMs, value }];
  if (atMs <= last.atMs) return samples;
  if (value < last.value) return [{ atMs, value }];
  const goesOn = value === last.value && samples.at(-2)?.value === value;
  const before = goesOn ? samples.slice(0, -1) : samples;
  return [...before.filter((sample) => sample.atMs > atMs - KEPT_MS), { atMs, value }];
}

/**
 * Growth in a second, now; null while it is not known. Workers report every few seconds, each at its own time, so a
 * counter grows in steps: it is looked at from step to step, over the time of several of them.
 */
export function rateOf(samples: readonly Sample[]): number | null {
  const steps = stepsOf(samples);
  const [first, last, step] = [samples[0], samples.at(-1), steps.at(-1)];
  if (first === undefined || last === undefined) return null;
  if (step === undefined) return last.atMs - first.atMs >= QUIET_MS ? 0 : null;
  const gapMs = gapOf(steps, steps.length - 1);
  const quietMs = gapMs === null ? QUIET_MS : Math.max(SHORT_MS, 2.5 * gapMs);
  return last.atMs - step.atMs > quietMs ? 0 : rateAt(steps, steps.length - 1);
}

/** The same at each step so far, for a line. */
export function ratesOf(samples: readonly Sample[]): number[] {
  const steps = stepsOf(samples);
  const rates = steps.flatMap((_, index) => rateAt(steps, index) ?? []);
  return rateOf(samples) === 0 ? [...rates, 0] : rates;
}

/** At most so many: the largest of as many as share one, counted from the newest, so that nothing that stood out is lost. */
export function fewer(values: readonly number[], most: number): readonly number[] {
  const size = Math.ceil(values.length / most);
  if (size <= 1) return values;
  const short = values.length % size;
  const starts = Array.from({ length: Math.ceil(values.length / size) }, (_, index) =>
    short === 0 ? index * size : (index - 1) * size + short,
  );
  return starts.map((start) => Math.max(...values.slice(Math.max(0, start), start + size)));
}

/** Where it was found to have grown. */
function stepsOf(samples: readonly Sample[]): Sample[] {
  return samples.filter((sample, index) => index > 0 && sample.value !== samples[index - 1]?.value);
}

/** Of each step, found when it was the newest: what was before it does not change, and a line has hundreds. */
const found = new WeakMap<Sample, number | null>();

function rateAt(steps: readonly Sample[], index: number): number | null {
  const step = steps[index];
  if (step === undefined) return null;
  const known = found.get(step);
  if (known !== undefined) return known;
  const computed = rateUpTo(step, steps, index);
  found.set(step, computed);
  return computed;
}

function rateUpTo(last: Sample, steps: readonly Sample[], index: number): number | null {
  const gapMs = gapOf(steps, index);
  if (gapMs === null) return null;
  const windowMs = gapMs > RARE_MS ? LONG_MS : SHORT_MS;
  let from = index - 1;
  while (from > 0 && (steps[from - 1]?.atMs ?? 0) >= last.atMs - windowMs) from -= 1;
  const first = steps[from];
  if (first === undefined || last.atMs - first.atMs < SPAN_MS) return null;
  return ((last.value - first.value) * 1_000) / (last.atMs - first.atMs);
}

/** The longest time between two steps, of the last minute before one; null: it is the first. */
function gapOf(steps: readonly Sample[], index: number): number | null {
  let longest: number | null = null;
  const untilMs = (steps[index]?.atMs ?? 0) - GAPS_MS;
  for (let at = index; at > 0; at -= 1) {
    const [before, now] = [steps[at - 1], steps[at]];
    if (before === undefined || now === undefined || (longest !== null && before.atMs < untilMs)) break;
    longest = Math.max(longest ?? 0, now.atMs - before.atMs);
  }
  return longest;
}

/** A counter as it was at a time of the server's clock. */
export interface Sample {
  readonly atMs: number;
  readonly value: number;
}

export const KEPT_MS = 300_000;
const WINDOW_MS = 5_000;

/** The samples with a new one, none older than five minutes. A counter that has become smaller began again. */
export function sampled(samples: readonly Sample[], next: Sample): readonly Sample[] {
  const last = samples.at(-1);
  if (last !== undefined && next.atMs <= last.atMs) return samples;
  const kept = last !== undefined && next.value < last.value ? [] : samples;
  return [...kept.filter((sample) => sample.atMs > next.atMs - KEPT_MS), next];
}

/** Growth in a second over the last five; null where two samples are missing. */
export function rateOf(samples: readonly Sample[]): number | null {
  const last = samples.at(-1);
  if (last === undefined) return null;
  const first = samples.find((sample) => sample.atMs >= last.atMs - WINDOW_MS);
  if (first === undefined || first.atMs === last.atMs) return null;
  return ((last.value - first.value) * 1_000) / (last.atMs - first.atMs);
}

/** Growth in a second between each two samples, for a line. */
export function ratesOf(samples: readonly Sample[]): number[] {
  return samples.slice(1).map((sample, index) => {
    const before = samples[index] ?? sample;
    const passedMs = sample.atMs - before.atMs;
    return passedMs > 0 ? ((sample.value - before.value) * 1_000) / passedMs : 0;
  });
}

/** A counter as it was at a time of the server's clock. */
export interface Sample {
  readonly atMs: number;
  readonly value: number;
}

export const KEPT_MS = 300_000;
const WINDOW_MS = 5_000;
/** Times that are further back than this are of another clock: another leader's. */
export const OTHER_CLOCK_MS = 10_000;

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
  if (last === undefined) return [{ atMs, value }];
  if (atMs < last.atMs - OTHER_CLOCK_MS) return [{ atMs, value }];
  if (atMs <= last.atMs) return samples;
  const kept = value < last.value ? [] : samples;
  return [...kept.filter((sample) => sample.atMs > atMs - KEPT_MS), { atMs, value }];
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

import { useState } from "react";

import { type Sample, sampled } from "../model/rates";

type Kept = ReadonlyMap<string, readonly Sample[]>;

/** Counters (or with `keep` measures) as they come, by name, kept for five minutes while the page is open. */
export function useSamples(
  counters: ReadonlyMap<string, number | null>,
  atMs: number,
  keep: typeof sampled = sampled,
): Kept {
  const [{ seenMs, kept }, setState] = useState<{ seenMs: number; kept: Kept }>({
    seenMs: -1,
    kept: new Map(),
  });
  if (seenMs === atMs) return kept;
  const next: Kept = new Map(
    [...counters].map(([name, value]) => [name, keep(kept.get(name) ?? [], { atMs, value })]),
  );
  setState({ seenMs: atMs, kept: next });
  return next;
}

import type { RunLink } from "../api/schema";

/** A step of a run of Dagster that has a job. `watches`: it has not let it go. */
export interface DagsterRun {
  readonly run: string;
  readonly step: string;
  readonly attachedMs: number;
  readonly watches: boolean;
}

export const RUNS_MAX = 3;

/** The newest links, those first that still watch; each step of a run once. */
export function runsOf(links: readonly RunLink[]): readonly DagsterRun[] {
  const runs = links.map((link) => ({
    run: link.watcher.run,
    step: link.watcher.step,
    attachedMs: link.attached_ms,
    watches: link.released_ms === null,
  }));
  runs.sort((a, b) => Number(b.watches) - Number(a.watches) || b.attachedMs - a.attachedMs);
  const first = new Map(runs.map((run) => [`${run.run} ${run.step}`, run] as const).reverse());
  return runs.filter((run) => first.get(`${run.run} ${run.step}`) === run).slice(0, RUNS_MAX);
}

export const ASSETS_MAX = 5;

/** An asset of Dagster. `path`: of its page. */
export interface DagsterAsset {
  readonly key: string;
  readonly path: string;
}

/** Those that have a key. */
export function assetsOf(keys: readonly (readonly string[])[]): readonly DagsterAsset[] {
  return keys
    .filter((parts) => parts.length > 0)
    .map((parts) => ({ key: parts.join("/"), path: `/assets/${parts.map(encodeURIComponent).join("/")}` }));
}

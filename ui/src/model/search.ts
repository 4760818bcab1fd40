import type { JobInList } from "../api/schema";

/** A job that a search has found, and by what. */
export interface Hit {
  readonly job: string;
  readonly name: string;
  readonly what: string;
}

export const HITS_MAX = 12;

/** Jobs whose name, id or table has the text, whatever its case. Running ones first. */
export function hitsOf(jobs: readonly JobInList[], text: string): Hit[] {
  const wanted = text.trim().toLowerCase();
  const found = [...jobs]
    .sort((a, b) => Number(a.figures === null) - Number(b.figures === null))
    .flatMap(({ summary, figures }): Hit[] => {
      const by = (what: string): Hit => ({ job: summary.job, name: summary.name, what });
      if (summary.name.toLowerCase().includes(wanted)) return [by(summary.state.toLowerCase())];
      if (summary.job.startsWith(wanted)) return [by(summary.job)];
      const table = figures?.writes.find((uri) => uri.toLowerCase().includes(wanted));
      return table === undefined ? [] : [by(`writes ${table}`)];
    });
  return found.slice(0, HITS_MAX);
}

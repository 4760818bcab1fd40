import type { JobInList } from "../api/schema";

/** A job that a search has found, and by what. `vertex`: the one that has the name. */
export interface Hit {
  readonly job: string;
  readonly vertex?: string;
  readonly name: string;
  readonly what: string;
}

export const HITS_MAX = 12;

/** Jobs by name, id, operator, table or topic that has the text, whatever its case. Running ones first. */
export function hitsOf(jobs: readonly JobInList[], text: string): Hit[] {
  const wanted = text.trim().toLowerCase();
  const found = [...jobs]
    .sort((a, b) => Number(a.figures === null) - Number(b.figures === null))
    .flatMap(({ summary, figures }): Hit[] => {
      const by = (what: string): Hit => ({ job: summary.job, name: summary.name, what });
      if (summary.name.toLowerCase().includes(wanted)) return [by(summary.state.toLowerCase())];
      if (summary.job.startsWith(wanted)) return [by(summary.job)];
      const has = (name: string) => name.toLowerCase().includes(wanted);
      const written = figures?.writes.filter(has).map((uri) => by(`writes ${uri}`)) ?? [];
      const read = figures?.reads.filter(has).map((uri) => by(`reads ${uri}`)) ?? [];
      const vertices =
        figures?.vertices
          .filter((vertex) => has(vertex.name))
          .map((vertex) => ({ ...by(vertex.name), vertex: vertex.id })) ?? [];
      return [...written, ...read, ...vertices];
    });
  return found.slice(0, HITS_MAX);
}

import type { JobSummary } from "../api/schema";

export const ENDED = ["FINISHED", "FAILED", "CANCELED", "SUSPENDED"] as const;
export type Ended = (typeof ENDED)[number];

/** What the history is searched for, as the URL says it; "": all. Days are of the browser's zone. */
export interface HistoryView {
  readonly name: string;
  readonly table: string;
  readonly states: readonly Ended[];
  readonly from: string;
  readonly to: string;
}

const DAY = /^\d{4}-\d{2}-\d{2}$/;

/** The view of a URL; what it does not say, or says wrongly, is left out. */
export function historyViewOf(search: { readonly [name in keyof HistoryView]?: unknown }): HistoryView {
  const text = (value: unknown) =>
    typeof value === "string" || typeof value === "number" ? String(value).slice(0, 300) : "";
  const day = (value: unknown) =>
    typeof value === "string" && DAY.test(value) && !Number.isNaN(Date.parse(value)) ? value : "";
  const given = Array.isArray(search.states) ? (search.states as unknown[]) : [];
  return {
    name: text(search.name),
    table: text(search.table),
    states: ENDED.filter((state) => given.includes(state)),
    from: day(search.from),
    to: day(search.to),
  };
}

/** The question to the server: from the beginning of the first day to the end of the last one. */
export interface HistoryQuestion {
  readonly name?: string;
  readonly table?: string;
  readonly state?: string;
  readonly since?: number;
  readonly until?: number;
}

export function questionOf(view: HistoryView): HistoryQuestion {
  const all = view.states.length === 0 || view.states.length === ENDED.length;
  return {
    ...(view.name === "" ? {} : { name: view.name }),
    ...(view.table === "" ? {} : { table: view.table }),
    ...(all ? {} : { state: view.states.join(",") }),
    ...(view.from === "" ? {} : { since: new Date(`${view.from}T00:00:00`).getTime() }),
    ...(view.to === "" ? {} : { until: new Date(`${view.to}T23:59:59.999`).getTime() }),
  };
}

/** Its tables and topics, each once. */
export function tablesOf({ writes }: JobSummary): string[] {
  return [...new Set(Object.values(writes).flat())].sort();
}

/** How long it was there; null: its end is not known. */
export function lastedMs({ submitted_ms, ended_ms }: JobSummary): number | null {
  return ended_ms === null ? null : Math.max(0, ended_ms - submitted_ms);
}

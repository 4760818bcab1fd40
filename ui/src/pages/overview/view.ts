import type { SearchSchemaInput } from "@tanstack/react-router";

import type { JobInList } from "../../api/schema";
import { isOver } from "../../model/states";

export const COLUMNS = ["name", "state", "started", "behind", "checkpoint", "restarts"] as const;
export type Column = (typeof COLUMNS)[number];

/** What the list shows, as the URL says it. */
export interface JobsView {
  readonly which: "running" | "ended" | "all";
  readonly by: Column;
  readonly down: boolean;
}

export const FIRST_VIEW: JobsView = { which: "all", by: "started", down: true };

/** The view of a URL; what it does not say, or says wrongly, is as at first. */
export function viewOf(
  search: { readonly [name in keyof JobsView]?: unknown } & SearchSchemaInput,
): JobsView {
  const which = (["running", "ended", "all"] as const).find((one) => one === search.which);
  const by = COLUMNS.find((one) => one === search.by);
  const down = typeof search.down === "boolean" ? search.down : FIRST_VIEW.down;
  return { which: which ?? FIRST_VIEW.which, by: by ?? FIRST_VIEW.by, down };
}

/** The jobs of a view, in its order. */
export function sortedJobs(jobs: readonly JobInList[], view: JobsView): JobInList[] {
  const shown = jobs.filter(
    ({ summary }) => view.which === "all" || isOver(summary.state) === (view.which === "ended"),
  );
  const sign = view.down ? -1 : 1;
  return shown.sort((a, b) => sign * compared(key(a, view.by), key(b, view.by)));
}

function key({ summary, figures }: JobInList, by: Column): string | number {
  switch (by) {
    case "name":
      return summary.name;
    case "state":
      return summary.state;
    case "started":
      return summary.submitted_ms;
    case "behind":
      return figures?.behind ?? -1;
    case "checkpoint":
      return figures?.checkpoint?.triggered_ms ?? -1;
    case "restarts":
      return summary.restarts;
  }
}

function compared(a: string | number, b: string | number): number {
  return typeof a === "string" || typeof b === "string" ? String(a).localeCompare(String(b)) : a - b;
}

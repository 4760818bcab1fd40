import type { SearchSchemaInput } from "@tanstack/react-router";

/** What the page shows, as the URL says it: workers with a text, and one that is opened. */
export interface WorkersView {
  readonly q: string;
  readonly worker: string;
}

export function workersViewOf(
  search: { readonly [name in keyof WorkersView]?: unknown } & SearchSchemaInput,
): WorkersView {
  const text = (value: unknown) =>
    typeof value === "string" || typeof value === "number" ? String(value) : "";
  return { q: text(search.q), worker: text(search.worker) };
}

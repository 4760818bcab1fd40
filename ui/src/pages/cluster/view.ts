import type { SearchSchemaInput } from "@tanstack/react-router";

/** Which options the page lists, as the URL says it. */
export interface ClusterView {
  readonly q: string;
  readonly all: boolean;
}

export function clusterViewOf(
  search: { readonly [name in keyof ClusterView]?: unknown } & SearchSchemaInput,
): ClusterView {
  return {
    q: typeof search.q === "string" || typeof search.q === "number" ? String(search.q) : "",
    all: search.all === true,
  };
}

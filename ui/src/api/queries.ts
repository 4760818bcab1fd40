import { queryOptions, useQuery } from "@tanstack/react-query";

import { client, dataOf } from "./client";

export const REFRESH_MS = 1_000;

/** Every job with its figures, each second. */
export const overviewQuery = queryOptions({
  queryKey: ["overview"],
  queryFn: async ({ signal }) => dataOf(await client.GET("/unistream/overview", { signal })),
  refetchInterval: REFRESH_MS,
});

/** All that is known of one job, each second while it runs. */
export function jobQuery(id: string) {
  return queryOptions({
    queryKey: ["job", id],
    queryFn: async ({ signal }) =>
      dataOf(await client.GET("/unistream/jobs/{id_}", { params: { path: { id_: id } }, signal })),
    refetchInterval: (query) => (query.state.data?.ended_ms == null ? REFRESH_MS : false),
  });
}

/** Its vertices and what each reads. */
export function planQuery(id: string) {
  return queryOptions({
    queryKey: ["plan", id],
    queryFn: async ({ signal }) =>
      dataOf(await client.GET("/jobs/{id_}/plan", { params: { path: { id_: id } }, signal })).plan,
    staleTime: 10_000,
  });
}

/** Its graph as people read it: chains, lines of the program, regions, exchanges. */
export function verticesQuery(id: string) {
  return queryOptions({
    queryKey: ["vertices", id],
    queryFn: async ({ signal }) =>
      dataOf(await client.GET("/unistream/jobs/{id_}/vertices", { params: { path: { id_: id } }, signal })),
    staleTime: 10_000,
  });
}

/** Its checkpoints with what each subtask said. */
export function checkpointsQuery(id: string) {
  return queryOptions({
    queryKey: ["checkpoints", id],
    queryFn: async ({ signal }) =>
      dataOf(
        await client.GET("/unistream/jobs/{id_}/checkpoints", { params: { path: { id_: id } }, signal }),
      ),
    refetchInterval: REFRESH_MS,
  });
}

export function useOverview() {
  return useQuery(overviewQuery);
}

/** The time by the clock of the cluster; null until it has answered. */
export function useNowMs(): number | null {
  return useOverview().data?.now_ms ?? null;
}

import { queryOptions } from "@tanstack/react-query";

import { client, dataOf } from "./client";

const WORKERS_MS = 2_000;
const LOG_MS = 5_000;
const CLUSTER_MS = 5_000;

/** Every worker with what is in its slots, and hosts that are avoided. */
export const workersQuery = queryOptions({
  queryKey: ["workers"],
  queryFn: async ({ signal }) => dataOf(await client.GET("/unistream/workers", { signal })),
  refetchInterval: WORKERS_MS,
});

/** The end of a worker's log. */
export function workerLogQuery(id: string) {
  return queryOptions({
    queryKey: ["worker log", id],
    queryFn: async ({ signal }) =>
      dataOf(await client.GET("/unistream/workers/{id_}/log", { params: { path: { id_: id } }, signal })),
    refetchInterval: LOG_MS,
  });
}

/** Who leads, and where the cluster keeps what. */
export const clusterQuery = queryOptions({
  queryKey: ["cluster"],
  queryFn: async ({ signal }) => dataOf(await client.GET("/unistream/cluster", { signal })),
  refetchInterval: CLUSTER_MS,
});

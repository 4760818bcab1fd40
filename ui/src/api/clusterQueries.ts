import { infiniteQueryOptions, keepPreviousData, queryOptions } from "@tanstack/react-query";

import type { HistoryQuestion } from "../model/history";
import { client, dataOf } from "./client";
import type { DrainStatus } from "./schema";

const WORKERS_MS = 2_000;
const LOG_MS = 5_000;
const CLUSTER_MS = 5_000;
const TIMELINE_MS = 3_000;
const JOB_LOG_MS = 1_000;
const EXPLAIN_MS = 10_000;
const PROCEDURES_MS = 5_000;

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

/** Jobs that do not run, page by page, newest first. */
export function historyQuery(question: HistoryQuestion) {
  return infiniteQueryOptions({
    queryKey: ["history", question],
    queryFn: async ({ signal, pageParam }) => {
      const query = { ...question, ...(pageParam === null ? {} : { cursor: pageParam }) };
      return dataOf(await client.GET("/unistream/history", { params: { query }, signal }));
    },
    initialPageParam: null as string | null,
    getNextPageParam: ({ next }) => next,
    placeholderData: keepPreviousData,
  });
}

/** Backfills and upgrades; `job`: of this one alone. */
export function proceduresQuery(job: string | null) {
  return queryOptions({
    queryKey: ["procedures", job],
    queryFn: async ({ signal }) => {
      const query = job === null ? {} : { job };
      return dataOf(await client.GET("/unistream/procedures", { params: { query }, signal }));
    },
    refetchInterval: PROCEDURES_MS,
  });
}

/** Dead letters of a table that a sink of the job writes. */
export function lettersQuery(
  id: string,
  table: string,
  chosen: { operator: string; error: string },
  /** How many replays are over: then they are others. */
  replays: number,
) {
  const query = { table, operator: chosen.operator.trim(), error: chosen.error.trim() };
  return queryOptions({
    queryKey: ["letters", id, query, replays],
    queryFn: async ({ signal }) =>
      dataOf(
        await client.GET("/unistream/jobs/{id_}/dead-letters", {
          params: { path: { id_: id }, query },
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
  });
}

/** The life of a job on one axis; of a job that has ended it is read once. */
export function timelineQuery(id: string) {
  return queryOptions({
    queryKey: ["timeline", id],
    queryFn: async ({ signal }) =>
      dataOf(await client.GET("/unistream/jobs/{id_}/timeline", { params: { path: { id_: id } }, signal })),
    refetchInterval: (query) => (query.state.data?.ended_ms == null ? TIMELINE_MS : false),
  });
}

/** What the functions of a job have logged behind a line; 0: all that is kept. */
export function jobLogQuery(job: string, after: number) {
  return queryOptions({
    queryKey: ["log", job, after],
    queryFn: async ({ signal }) => {
      const params = { path: { job }, query: { after } };
      return dataOf(await client.GET("/unistream/jobs/{job}/log", { params, signal }));
    },
    refetchInterval: JOB_LOG_MS,
    placeholderData: keepPreviousData,
    gcTime: 0, // each answer has a key of its own, and is kept by who asks
  });
}

/** What a job became, in words. */
export function explainQuery(id: string) {
  return queryOptions({
    queryKey: ["explain", id],
    queryFn: async ({ signal }) =>
      dataOf(await client.GET("/unistream/jobs/{id_}/explain", { params: { path: { id_: id } }, signal })),
    refetchInterval: EXPLAIN_MS,
  });
}

/** Whose certificates the servers show, and what was issued until when. */
export const certificatesQuery = queryOptions({
  queryKey: ["certificates"],
  queryFn: async ({ signal }) => dataOf(await client.GET("/unistream/certificates", { signal })),
  refetchInterval: CLUSTER_MS,
});

/** Its tasks move, then it ends. `wait`: for slots, if there are too few elsewhere. Throws as `dataOf`. */
export async function drainWorker(id: string, wait: boolean): Promise<DrainStatus> {
  const path = { id_: id };
  return dataOf(await client.POST("/unistream/workers/{id_}/drain", { params: { path }, body: { wait } }));
}

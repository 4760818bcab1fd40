import { queryOptions, useQuery } from "@tanstack/react-query";
import { useSyncExternalStore } from "react";

import { Refused, Unreachable, client, dataOf, patient } from "./client";
import { type LiveStatus, live } from "./live";
import type { CheckpointsInfo, JobInfo, Overview } from "./schema";
import { type SessionState, session } from "./session";

const RUNS_MS = 10_000;

/**
 * The newest of a topic that `live` keeps: what its stream has, or else what the server answers. While that was on
 * its way the stream may have brought something newer.
 */
async function newest<T>(topic: string, ask: () => Promise<T>): Promise<T> {
  const known = live.picture(topic);
  if (known !== undefined) return known as T;
  const answer = await ask();
  return (live.picture(topic) as T | undefined) ?? answer;
}

/** Every job with its figures. */
export const overviewQuery = queryOptions({
  queryKey: ["overview"],
  queryFn: ({ signal }) =>
    newest<Overview>("overview", async () => {
      try {
        const overview = dataOf(await client.GET("/unistream/overview", { signal }));
        live.answered(overview);
        return overview;
      } catch (error) {
        if (error instanceof Refused || error instanceof Unreachable) live.unanswered(error.message);
        throw error;
      }
    }),
});

/** All that is known of one job. */
export function jobQuery(job: string) {
  const id = job.toLowerCase();
  return queryOptions({
    queryKey: ["job", id],
    queryFn: ({ signal }) =>
      newest<JobInfo>(`job/${id}`, async () =>
        dataOf(await client.GET("/unistream/jobs/{id_}", { params: { path: { id_: id } }, signal })),
      ),
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
export function checkpointsQuery(job: string) {
  const id = job.toLowerCase();
  return queryOptions({
    queryKey: ["checkpoints", id],
    queryFn: ({ signal }) =>
      newest<CheckpointsInfo>(`checkpoints/${id}`, async () =>
        dataOf(
          await client.GET("/unistream/jobs/{id_}/checkpoints", { params: { path: { id_: id } }, signal }),
        ),
      ),
  });
}

/** Whom the cluster takes this tab for. */
export const identityQuery = queryOptions({
  queryKey: ["identity"],
  queryFn: async ({ signal }) => dataOf(await client.GET("/unistream/identity", { signal })),
  staleTime: 60_000,
});

/** Whether pages of this cluster may change something. */
export const featuresQuery = queryOptions({
  queryKey: ["features"],
  queryFn: async ({ signal }) => dataOf(await client.GET("/config", { signal })).features,
  staleTime: 60_000,
});

/** Runs of Dagster that have started the job, or watch it, and the assets that it represents. */
export function runsQuery(id: string) {
  return queryOptions({
    queryKey: ["runs", id],
    queryFn: async ({ signal }) =>
      dataOf(await client.GET("/unistream/run-links", { params: { query: { job: id } }, signal })),
    refetchInterval: RUNS_MS,
  });
}

/** How it takes checkpoints, and whether they stay. */
export function checkpointConfigQuery(id: string) {
  return queryOptions({
    queryKey: ["checkpoint-config", id],
    queryFn: async ({ signal }) =>
      dataOf(await client.GET("/jobs/{id_}/checkpoints/config", { params: { path: { id_: id } }, signal })),
    staleTime: 60_000,
  });
}

/** Its vertices with how wide each is, and can be. */
export function detailsQuery(id: string) {
  return queryOptions({
    queryKey: ["details", id],
    queryFn: async ({ signal }) =>
      dataOf(await client.GET("/jobs/{id_}", { params: { path: { id_: id } }, signal })),
  });
}

/** Whether a job that has ended can be started again from here. */
export function keptQuery(id: string) {
  return queryOptions({
    queryKey: ["kept", id],
    queryFn: async ({ signal }) => {
      const answer = await client.GET("/unistream/kept-jobs", { params: { query: { job: id } }, signal });
      return dataOf(answer).kept.some(({ forRestart }) => forRestart);
    },
    staleTime: 10_000,
  });
}

const STATE_REFRESH_MS = 15_000;
const QUERY_TIMEOUT_MS = 40_000;

/** What a snapshot holds; without `checkpoint` the newest one, which another one replaces soon. */
export function stateQuery(id: string, checkpoint: number | undefined) {
  return queryOptions({
    queryKey: ["state", id, checkpoint ?? "newest"],
    queryFn: async ({ signal }) =>
      dataOf(
        await client.GET("/unistream/jobs/{id_}/state", {
          params: { path: { id_: id }, query: checkpoint === undefined ? {} : { checkpoint } },
          signal,
        }),
      ),
    refetchInterval: checkpoint === undefined ? STATE_REFRESH_MS : false,
    staleTime: checkpoint === undefined ? 0 : Infinity,
  });
}

/** Rows of a snapshot's states, once for each statement: leaving the page stops it. */
export function savepointQuery(job: string, checkpoint: number | undefined, sql: string | undefined) {
  return queryOptions({
    queryKey: ["savepoint query", job, checkpoint ?? "newest", sql],
    queryFn: async ({ signal }) =>
      dataOf(
        await client.POST("/unistream/savepoints/query", {
          body: { job, sql: sql ?? "", checkpointId: checkpoint ?? null },
          signal,
          fetch: patient(QUERY_TIMEOUT_MS),
        }),
      ),
    enabled: sql !== undefined,
    retry: false,
    staleTime: Infinity,
    refetchOnWindowFocus: false,
    refetchOnReconnect: false,
  });
}

const COMMITS_REFRESH_MS = 3_000;
const COMMITS_SHOWN = 60;

/** What the sinks of a job have committed, and what waits. */
export function commitsQuery(id: string) {
  return queryOptions({
    queryKey: ["commits", id],
    queryFn: async ({ signal }) =>
      dataOf(
        await client.GET("/unistream/jobs/{id_}/commits", {
          params: { path: { id_: id }, query: { limit: COMMITS_SHOWN } },
          signal,
        }),
      ),
    refetchInterval: COMMITS_REFRESH_MS,
  });
}

export function useOverview() {
  return useQuery(overviewQuery);
}

/** Whether somebody is signed in. */
export function useSession(): SessionState {
  return useSyncExternalStore(session.subscribe, session.state);
}

export function useLive(): LiveStatus {
  return useSyncExternalStore(live.subscribe, live.status);
}

/** The time by the clock of the cluster, which goes on each second; null until it has answered. */
export function useNowMs(): number | null {
  return useSyncExternalStore(live.subscribe, () => live.status().nowMs);
}

/** Up to when what is shown of a topic holds, by the clock of the cluster; `knownMs` if no stream says so. */
export function useHoldsUntilMs(topic: string, knownMs: number): number {
  return useSyncExternalStore(live.subscribe, () => live.holdsUntilMs(topic) ?? knownMs);
}

/** By the clock of the cluster. */
export function serverMsOf(answeredMs: number): number {
  return live.serverMs(answeredMs);
}

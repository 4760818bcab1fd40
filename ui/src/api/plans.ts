import { queryOptions } from "@tanstack/react-query";

import type { Asked } from "../model/submission";
import { client, dataOf, patient } from "./client";
import type { PlanBody, PlanShown } from "./schema";

/** Longer than the cluster lets a plan take. */
const PLAN_TIMEOUT_MS = 90_000;

/** Whether the cluster plans pipelines, and from where it imports them. */
export const planningQuery = queryOptions({
  queryKey: ["planning"],
  queryFn: async ({ signal }) => dataOf(await client.GET("/unistream/plans", { signal })),
  staleTime: 60_000,
});

/** What a pipeline becomes; nothing is started. Throws as `dataOf`: the second sentence is a traceback. */
export async function planPipeline(asked: Asked): Promise<PlanShown> {
  const body = asked as PlanBody;
  return dataOf(await client.POST("/unistream/plans", { body, fetch: patient(PLAN_TIMEOUT_MS) }));
}

/** The job of a plan; again, it is the same one. Throws as `dataOf`. */
export async function startPlan(id: string): Promise<string> {
  const answer = await client.POST("/unistream/plans/{id_}/start", { params: { path: { id_: id } } });
  return dataOf(answer).jobid;
}

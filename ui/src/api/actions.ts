import { client, dataOf } from "./client";
import type { ReplayBody } from "./schema";

/** The requests of actions. Each may be sent again with the same id: it is done once. They throw as `dataOf`. */

/** What was submitted of a job stays beyond its end. */
export async function keep(job: string, signal: AbortSignal) {
  const path = { name: keptName(job) };
  dataOf(
    await client.PUT("/unistream/kept-jobs/{name}", {
      params: { path },
      body: { job, forRestart: true },
      signal,
    }),
  );
}

export async function askSavepoint(
  job: string,
  trigger: string,
  directory: string | null,
  signal: AbortSignal,
) {
  const body = { triggerId: trigger, "target-directory": directory, "cancel-job": false, formatType: null };
  dataOf(await client.POST("/jobs/{id_}/savepoints", { params: { path: { id_: job } }, body, signal }));
}

export async function askStop(
  job: string,
  trigger: string,
  { directory, drain }: { directory: string | null; drain: boolean },
  signal: AbortSignal,
) {
  const body = { triggerId: trigger, targetDirectory: directory, drain, formatType: null };
  dataOf(await client.POST("/jobs/{id_}/stop", { params: { path: { id_: job } }, body, signal }));
}

export async function jobOf(job: string, signal: AbortSignal) {
  return dataOf(await client.GET("/unistream/jobs/{id_}", { params: { path: { id_: job } }, signal }));
}

/** Of a savepoint or a stop; null: it is not over. */
export async function savepointOf(job: string, trigger: string, signal: AbortSignal) {
  const path = { id_: job, trigger };
  return dataOf(await client.GET("/jobs/{id_}/savepoints/{trigger}", { params: { path }, signal })).operation;
}

export async function askRescale(
  job: string,
  triggerId: string,
  parallelism: Readonly<Record<string, number>>,
  signal: AbortSignal,
) {
  const body = { parallelism, triggerId };
  dataOf(
    await client.POST("/unistream/jobs/{id_}/rescale", { params: { path: { id_: job } }, body, signal }),
  );
}

/** The parallelism by vertex; null: it is not over. */
export async function rescaleOf(job: string, trigger: string, signal: AbortSignal) {
  const path = { id_: job, trigger };
  const answer = await client.GET("/unistream/jobs/{id_}/rescale/{trigger}", { params: { path }, signal });
  return dataOf(answer).operation?.parallelism ?? null;
}

/** A replay of dead letters, under the trigger id in its body. */
export async function askReplay(job: string, body: ReplayBody) {
  const path = { id_: job };
  dataOf(await client.POST("/unistream/jobs/{id_}/dead-letters/replays", { params: { path }, body }));
}

export async function replayOf(job: string, trigger: string, signal: AbortSignal) {
  const path = { id_: job, trigger };
  return dataOf(
    await client.GET("/unistream/jobs/{id_}/dead-letters/replays/{trigger}", { params: { path }, signal }),
  );
}

export async function askCancel(job: string, signal: AbortSignal) {
  dataOf(await client.PATCH("/jobs/{id_}", { params: { path: { id_: job } }, signal }));
}

export async function stateOf(job: string, signal: AbortSignal) {
  return dataOf(await client.GET("/jobs/{id_}/status", { params: { path: { id_: job } }, signal })).status;
}

export interface Changes {
  readonly config: Record<string, string>;
  readonly parallelism: Record<string, number>;
}

/** Whether what is kept could be started with them. */
export async function check(job: string, changes: Changes, signal: AbortSignal) {
  const path = { name: keptName(job) };
  dataOf(await client.POST("/unistream/kept-jobs/{name}/check", { params: { path }, body: changes, signal }));
}

/** A checkpoint now, which is one for each trigger id. */
export async function askCheckpoint(job: string, triggerId: string, signal: AbortSignal) {
  const body = { checkpointType: "CONFIGURED", triggerId };
  dataOf(await client.POST("/jobs/{id_}/checkpoints", { params: { path: { id_: job } }, body, signal }));
}

/** The id of a new job of what is kept. */
export async function start(
  job: string,
  requestId: string,
  savepointPath: string,
  signal: AbortSignal,
  changes: Changes = { config: {}, parallelism: {} },
) {
  const path = { name: keptName(job) };
  const body = { savepointPath, requestId, ...changes };
  return dataOf(await client.POST("/unistream/kept-jobs/{name}/start", { params: { path }, body, signal }))
    .jobid;
}

function keptName(job: string): string {
  return `restart ${job}`;
}

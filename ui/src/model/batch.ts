import type { JobInfo, StageProgress, SubtaskInfo } from "../api/schema";
import type { Tone } from "./states";

/** One stage of a bounded job: what runs together between two exchanges that are stored. */
export interface Stage {
  readonly name: string;
  readonly state: "waits" | "runs" | "done" | "failed";
  readonly tasks: number;
  readonly running: number;
  /** At most `tasks`, also where a slow task was run twice. */
  readonly finished: number;
  /** Attempts; those that were repeated are among them. */
  readonly failed: number;
  readonly rowsIn: number;
  readonly rowsOut: number;
  /** null: nobody counts it. */
  readonly shuffleBytes: number | null;
}

export interface Batch {
  readonly stages: readonly Stage[];
  readonly done: number;
  readonly tasks: number;
  readonly finished: number;
}

/** The stages of the run, in order: those of the engine that runs it, else the vertices of the job. */
export function batchOf(job: Pick<JobInfo, "stages" | "subtasks" | "state">): Batch {
  const ended = job.state === "FAILED" || job.state === "CANCELED";
  const stages = (job.stages.length > 0 ? job.stages.map(ofEngine) : ofVertices(job.subtasks)).map(
    (stage) => ({
      ...stage,
      state: stateOf(stage, ended),
    }),
  );
  return {
    stages,
    done: stages.filter(({ state }) => state === "done").length,
    tasks: stages.reduce((sum, { tasks }) => sum + tasks, 0),
    finished: stages.reduce((sum, { finished }) => sum + finished, 0),
  };
}

type Counted = Omit<Stage, "state">;

function ofEngine(stage: StageProgress): Counted {
  return {
    name: stage.name,
    tasks: stage.tasks,
    running: stage.running,
    finished: Math.min(stage.finished, stage.tasks),
    failed: stage.failed,
    rowsIn: stage.rows_in,
    rowsOut: stage.rows_out,
    shuffleBytes: stage.shuffle_bytes,
  };
}

const BEGUN: readonly SubtaskInfo["state"][] = ["DEPLOYING", "INITIALIZING", "RUNNING", "CANCELING"];

function ofVertices(subtasks: readonly SubtaskInfo[]): Counted[] {
  const vertices = new Map<string, SubtaskInfo[]>();
  for (const one of subtasks) {
    const found = vertices.get(one.vertex);
    if (found === undefined) vertices.set(one.vertex, [one]);
    else found.push(one);
  }
  return [...vertices.values()].map((found) => ({
    name: found[0]?.vertex_name ?? "",
    tasks: found.length,
    running: found.filter(({ state }) => BEGUN.includes(state)).length,
    finished: found.filter(({ state }) => state === "FINISHED").length,
    failed: found.reduce((sum, one) => sum + failures(one), 0),
    rowsIn: found.reduce((sum, { metrics }) => sum + metrics.records_in, 0),
    rowsOut: found.reduce((sum, { metrics }) => sum + metrics.records_out, 0),
    shuffleBytes: null,
  }));
}

function failures({ state, past }: SubtaskInfo): number {
  return past.filter((one) => one.state === "FAILED").length + (state === "FAILED" ? 1 : 0);
}

function stateOf({ tasks, running, finished, failed }: Counted, ended: boolean): Stage["state"] {
  if (finished >= tasks) return "done";
  if (ended) return failed > 0 ? "failed" : "waits";
  return running > 0 || finished > 0 ? "runs" : "waits";
}

export function toneOfStage(state: Stage["state"]): Tone {
  switch (state) {
    case "done":
      return "good";
    case "runs":
      return "busy";
    case "failed":
      return "bad";
    case "waits":
      return "quiet";
  }
}

/** The part of its tasks that have finished, 0 to 1. */
export function partOf({ finished, tasks }: Pick<Batch, "finished" | "tasks">): number {
  return tasks === 0 ? 0 : finished / tasks;
}

/** Where a link may lead; null: nowhere. An address comes from Spark, and only a page is followed. */
export function pageOf(url: string | null): string | null {
  return url !== null && /^https?:\/\//i.test(url) ? url : null;
}

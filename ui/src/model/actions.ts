import type { CheckpointConfig, CheckpointInfo, JobInfo } from "../api/schema";
import { duration, since } from "../format/times";
import type { Asked } from "./operations";
import { isOver } from "./states";

/** What can be done to a job, in the order of the buttons: what ends it comes last. */
export type Action = "savepoint" | "rescale" | "upgrade" | "stop" | "drain" | "cancel" | "start";

/** What decides about actions. What is not known yet is null. */
export interface Subject {
  readonly job: Pick<
    JobInfo,
    | "state"
    | "job_type"
    | "subtasks"
    | "sinks"
    | "writes"
    | "checkpoints"
    | "savepoint"
    | "resumes_from"
    | "latest_checkpoint"
  >;
  readonly checkpoints: CheckpointConfig | null;
  /** What was submitted of it is still there. */
  readonly kept: boolean;
  /** What this browser has begun, and is not over. */
  readonly underWay: readonly Asked[];
  readonly nowMs: number | null;
}

/** Those that its kind of job can ever take in its part of life. */
export function actionsOf({ job, kept }: Pick<Subject, "job" | "kept">): Action[] {
  if (isOver(job.state)) return kept ? ["start"] : [];
  return job.job_type === "BATCH"
    ? ["cancel"]
    : ["savepoint", "rescale", "upgrade", "stop", "drain", "cancel"];
}

/** Why it cannot be done now, and when it can; null: it can. */
export function hindranceOf(action: Action, subject: Subject): string | null {
  const { job, underWay } = subject;
  if (action === "start") {
    if (underWay.includes("start")) return "A new job of it is being started already: see below.";
    return pointsOf(subject).length > 0 ? null : "No savepoint of it is known that a job can start from.";
  }
  if (isOver(job.state)) return `The job has ended as ${job.state}.`;
  if (job.state === "CANCELLING") return "The job is being cancelled.";
  if (job.state === "FAILING") return "The job is failing: nothing can be done to it any more.";
  if (action === "cancel") return null;
  if (underWay.includes("upgrade")) return "The job is being upgraded: see below.";
  if (underWay.includes("stop") || underWay.includes("drain")) {
    return "The job is being stopped already: see below.";
  }
  if (action === "rescale" && underWay.includes("rescale")) return "The job is being rescaled already.";
  const waits = waitsFor(job);
  return waits === null ? null : `${waits} It can be done when all of them do.`;
}

/** What a snapshot or another parallelism has to wait for; null: nothing, or nothing that will come. */
export function waitsFor(job: Pick<JobInfo, "state" | "subtasks">): string | null {
  if (isOver(job.state)) return null;
  const run = job.subtasks.filter(({ state }) => state === "RUNNING" || state === "FINISHED").length;
  if (job.state === "RUNNING" && run === job.subtasks.length) return null;
  return `The job is ${job.state}, and ${run} of its ${job.subtasks.length} tasks run.`;
}

/** What will happen, in plain words. `confirm`: on the button. */
export interface Consequences {
  readonly title: string;
  readonly rows: string;
  readonly state: string;
  readonly then: string;
  readonly confirm: string;
  readonly isEnd: boolean;
}

export function consequencesOf(action: Action, subject: Subject): Consequences {
  switch (action) {
    case "savepoint":
      return {
        title: "Take a savepoint",
        rows: "They keep flowing, and none is read again.",
        state: "It is written to a directory of yours: nothing removes it, and a job can start from it.",
        then: "The job goes on.",
        confirm: "Take it",
        isEnd: false,
      };
    case "rescale":
      return {
        title: "Change the parallelism",
        rows: "A checkpoint is taken, then all tasks end and start again from it: for some seconds no rows flow. None is lost or doubled.",
        state: "Keys, lists and splits are dealt out to the new subtasks.",
        then: "The job goes on with it until it ends. If the slots do not come in time, nothing has happened.",
        confirm: "Rescale",
        isEnd: false,
      };
    case "upgrade":
      return {
        title: "Upgrade: other options, another parallelism",
        rows: `The job stops: no row is read after its savepoint. ${visible(subject)} The new job reads on from there; none is lost or doubled. For some seconds, or until slots are there, no rows flow.`,
        state: "It is in the savepoint, and the new job begins with it. Open windows go on.",
        then: "A new job runs, with an id of its own. If it has no checkpoint in the end (it is refused, it fails), it is ended, and the job as it was starts again from the same savepoint.",
        confirm: "Upgrade the job",
        isEnd: true,
      };
    case "stop":
      return {
        title: "Stop with a savepoint",
        rows: `No row is read after the savepoint. ${visible(subject)} Open windows stay open, inside the savepoint.`,
        state:
          "It is in the savepoint, which is yours and stays. The checkpoints of the job are removed with it.",
        then: "The job ends as FINISHED. A job that starts from the savepoint goes on as if nothing had been.",
        confirm: "Stop the job",
        isEnd: true,
      };
    case "drain":
      return {
        title: "Drain: be done with the stream",
        rows: `No more rows are read, and event time goes to its end: open windows fire with the rows that they have. ${visible(subject)}`,
        state:
          "Two savepoints, which are yours and stay: one after the end of all windows, as a proof, and one to go on from. The checkpoints of the job are removed with it.",
        then: "The job ends as FINISHED. Should the stream go on after all, windows that were open come once more, whole.",
        confirm: "Drain the job",
        isEnd: true,
      };
    case "cancel":
      return {
        title: "Cancel",
        rows: lost(subject),
        state: left(subject),
        then: "The job ends as CANCELED, at once and without a savepoint.",
        confirm: "Cancel the job",
        isEnd: true,
      };
    case "start":
      return {
        title: "Start again from a restore point",
        rows: "Sources go on from the positions that are in it.",
        state:
          "The new job begins with the state in it, with the code and the options of the job that has ended.",
        then: "A new job runs, with an id of its own. Start one alone: two jobs from one point write the same rows.",
        confirm: "Start a job",
        isEnd: false,
      };
  }
}

/** Its sinks make rows visible with checkpoints, as far as anybody knows. */
function commits({ job }: Subject): boolean {
  return Object.keys(job.sinks).length > 0 || Object.keys(job.writes).length > 0;
}

function visible(subject: Subject): string {
  return commits(subject)
    ? "All rows up to there become visible in the sinks."
    : "All rows up to there reach the sinks.";
}

function lost(subject: Subject): string {
  const { job, nowMs } = subject;
  if (job.job_type === "BATCH") {
    return "Nothing of its output becomes visible, unless the job has begun to commit.";
  }
  if (!commits(subject)) return "What the sinks have shown stays. Rows on their way are dropped.";
  const last = job.checkpoints.find(({ state }) => state === "completed");
  if (last === undefined) {
    return "No checkpoint is complete, so nothing that the sinks have written becomes visible.";
  }
  const ago = since(last.triggered_ms, nowMs);
  const when = ago === null ? "" : ` (${duration(ago)} ago)`;
  return `Rows since the last checkpoint${when} do not become visible in the sinks. What is visible stays.`;
}

function left(subject: Subject): string {
  const { job, checkpoints } = subject;
  if (job.job_type === "BATCH") return "There is none to go on from: a new run begins at the beginning.";
  const newest = job.checkpoints.some((one) => isPoint(one))
    ? "The savepoints stay."
    : "There is no savepoint to go on from: stop the job instead if it shall go on later.";
  if (checkpoints === null) return `Checkpoints are deleted unless the retention says otherwise. ${newest}`;
  const { enabled, delete_on_cancellation } = checkpoints.externalization;
  return enabled && !delete_on_cancellation
    ? "The newest checkpoint stays, and a job can start from it."
    : `The checkpoints are deleted with it. ${newest}`;
}

/** What a job can start from. */
export interface RestorePoint {
  readonly path: string;
  readonly what: string;
  readonly atMs: number | null;
  /** A newer checkpoint was complete: rows may have been committed after this point. */
  readonly isOlder: boolean;
}

/** Those that are still there, as far as anybody knows: the newest first. */
export function pointsOf({ job, checkpoints }: Pick<Subject, "job" | "checkpoints">): RestorePoint[] {
  const complete = job.checkpoints.filter(({ state }) => state === "completed");
  const keptPath = stays(job.state, checkpoints) ? job.latest_checkpoint : null;
  const found = complete
    .filter((one) => isPoint(one) || (one.path !== null && one.path === keptPath))
    .sort((a, b) => b.checkpoint_id - a.checkpoint_id)
    .map((one): RestorePoint => ({
      path: one.path ?? "",
      what: `${one.kind === "checkpoint" ? "checkpoint" : "savepoint"} ${one.checkpoint_id}`,
      atMs: one.triggered_ms,
      isOlder: complete.some((other) => goesBeyond(other, one)),
    }));
  const { resumes_from } = job;
  if (resumes_from !== null && !found.some(({ path }) => path === resumes_from)) {
    found.unshift({ path: resumes_from, what: "savepoint", atMs: null, isOlder: false });
  }
  return found;
}

/** A savepoint before the end of data: nothing goes on from the one after it. */
function isPoint({ kind, state, path }: CheckpointInfo): boolean {
  return state === "completed" && path !== null && (kind === "savepoint" || kind === "suspend");
}

/** The terminal savepoint of a drain is of the same positions as the one before it. */
function goesBeyond(other: CheckpointInfo, one: CheckpointInfo): boolean {
  const ends = other.kind === "terminate" ? 1 : 0;
  return other.checkpoint_id - ends > one.checkpoint_id;
}

/** Its newest checkpoint is not removed when it ends so. */
function stays(state: JobInfo["state"], checkpoints: CheckpointConfig | null): boolean {
  if (state === "SUSPENDED") return true;
  if (checkpoints === null || !checkpoints.externalization.enabled) return false;
  return state === "FAILED" || (state === "CANCELED" && !checkpoints.externalization.delete_on_cancellation);
}

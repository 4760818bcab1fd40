import type { ExceptionInfo, JobInfo, SilentSource } from "../api/schema";
import { count } from "../format/numbers";
import { duration } from "../format/times";
import { isOver } from "./states";

/** For so long a failure from which a job has recovered stands at the top of its page. */
export const RECENT_MS = 15 * 60_000;

/** One thing that is wrong with a job: what, where, since when, and what comes next. */
export interface Trouble {
  readonly tone: "bad" | "warn" | "quiet";
  readonly what: string;
  /** Null: it belongs to no task, or nobody knows. */
  readonly task: string | null;
  /** The vertex of that task, for a link. */
  readonly vertex: string | null;
  readonly atMs: number | null;
  /** What happens now, and what there is to do. */
  readonly then: string;
  readonly page: "exceptions" | "checkpoints" | null;
}

/** What is wrong with a job, the worst first; nothing, if all is well. */
export function troublesOf(info: JobInfo, silent: readonly SilentSource[], nowMs: number | null): Trouble[] {
  const failure = failureOf(info, nowMs);
  const checkpoints = failure?.tone === "bad" ? null : checkpointsOf(info);
  const found = [failure, ...silent.map((one) => silentOf(one, info)), checkpoints];
  return found.filter((one) => one !== null).sort((a, b) => WORST[a.tone] - WORST[b.tone]);
}

const ENDED = "JobFailed";
const WORST = { bad: 0, warn: 1, quiet: 2 } as const;

function failureOf(info: JobInfo, nowMs: number | null): Trouble | null {
  const root = causeOf(info.exceptions[0]);
  if (root === undefined || info.state === "FINISHED" || info.state === "CANCELED") return null;
  const isMended = completedAfter(info, root.at_ms);
  if (info.state === "RUNNING" && isMended && since(root.at_ms, nowMs) > RECENT_MS) return null;
  const tone = info.state !== "RUNNING" ? "bad" : isMended ? "quiet" : "warn";
  return {
    tone,
    what: `${root.kind}: ${root.message}`,
    task: root.task_name,
    vertex: vertexOf(root, info),
    atMs: root.at_ms,
    then: [nowSentence(info, isMended), ...(tone === "quiet" ? [] : [toDo(root, info.state)])].join(" "),
    page: isOfCheckpoint(root) ? "checkpoints" : "exceptions",
  };
}

/** The end of a job is a failure without a place; what had failed before is in it. */
export function causeOf(root: ExceptionInfo | undefined): ExceptionInfo | undefined {
  return root?.kind === ENDED ? (root.concurrent.at(-1) ?? root) : root;
}

function since(atMs: number, nowMs: number | null): number {
  return nowMs === null ? 0 : nowMs - atMs;
}

function completedAfter(info: JobInfo, atMs: number): boolean {
  return info.checkpoints.some(({ state, triggered_ms }) => state === "completed" && triggered_ms > atMs);
}

/** Ids of attempts are `JOB/VERTEX#INDEX.ATTEMPT`. */
function vertexOf({ attempt }: ExceptionInfo, info: JobInfo): string | null {
  const id = /^[^/]+\/(.+)#\d+\.\d+$/.exec(attempt ?? "")?.[1];
  return id !== undefined && info.subtasks.some(({ vertex }) => vertex === id) ? id : null;
}

/** What the job does. The time of a restart is shown by who knows the zone. */
function nowSentence(info: JobInfo, isMended: boolean): string {
  const from = info.checkpoints.find(({ state }) => state === "completed");
  const where = from === undefined ? "from its beginning" : `from checkpoint ${from.checkpoint_id}`;
  if (isOver(info.state)) return "It does not start again by itself.";
  if (info.state !== "RUNNING") return `It starts again by itself, ${where}.`;
  return isMended
    ? "The job has started again since, and has completed checkpoints."
    : "The job runs again, and has not completed a checkpoint since.";
}

const CALLS_AGAIN =
  "If the row itself is the cause, it fails at each restart: mend the function and start the job again from " +
  "its last checkpoint, or let such rows go to the dead letters (on_error).";
/** Flink's names of the reasons, but for those of a task. */
const OF_CHECKPOINT = /CHECKPOINT|^IO_EXCEPTION$|^CHANNEL_STATE|^SnapshotNotStored$/;

function isOfCheckpoint({ kind }: Pick<ExceptionInfo, "kind">): boolean {
  return OF_CHECKPOINT.test(kind);
}

/** The kernel's own words. */
const FULL = /No space left on device|Disk quota exceeded/;
const NOT_STORED =
  /^CHECKPOINT_ASYNC|^FINALIZE_CHECKPOINT|^IO_EXCEPTION|^CHANNEL_STATE|^SnapshotNotStored|cannot write|storage failed|metadata could not be completed|writing (channel )?state/;
const EXPIRED = /^CHECKPOINT_EXPIRED|took longer than/;

/** What to do about a checkpoint that has failed, by its reason. */
function checkpointAdvice(reason: string): string {
  if (FULL.test(reason)) {
    return (
      "The place where checkpoints are stored is full: make room there. The next checkpoint is tried by itself, " +
      "so nothing has to be started again. Savepoints, and what ended jobs have kept, are never removed by themselves."
    );
  }
  if (EXPIRED.test(reason)) return "The page Checkpoints says which subtask was slow, and in which phase.";
  if (NOT_STORED.test(reason)) {
    return "It could not be stored: look at the place that is named here, and at whether workers and JobManager may write there. The next checkpoint is tried by itself.";
  }
  return "The page Checkpoints has the reasons of the last ones.";
}

function toDo({ kind, message }: ExceptionInfo, state: JobInfo["state"]): string {
  if (isOver(state))
    return "Mend what is named here, then start it again from a savepoint or its last checkpoint.";
  if (isOfCheckpoint({ kind })) return checkpointAdvice(`${kind}: ${message}`);
  switch (kind) {
    case "UserCodeError":
      return CALLS_AGAIN;
    case "TaskManagerLost":
    case "TaskManagerNotStarted":
      return "There is nothing to do, unless workers are lost again and again: then their log says why.";
    case "NoResourceAvailable":
      return "Add workers or slots, or make the job narrower.";
    case "Unreachable":
      return "It goes on when that system answers again: look at it, and at the network between.";
    default:
      return message === "" ? "The log of the worker says more." : "";
  }
}

function silentOf({ name, seconds, subtasks, of }: SilentSource, info: JobInfo): Trouble {
  const read = [...new Set(Object.values(info.reads).flat())];
  const places = read.length === 0 ? "" : ` The job reads ${read.join(", ")}.`;
  return {
    tone: "warn",
    what: `Source ${name} has had no answer for ${duration(seconds * 1_000)} (${count(subtasks)} of ${count(of)} subtasks).${places}`,
    task: null,
    vertex: info.subtasks.find(({ source }) => source === name)?.vertex ?? null,
    atMs: null,
    then:
      "Rows wait there and none is lost; the job goes on by itself when that system answers, and restarts until " +
      "it does. Look at it, and at the network between.",
    page: null,
  };
}

/** Checkpoints fail while the job runs: nothing becomes visible, and a restart would go far back. */
function checkpointsOf(info: JobInfo): Trouble | null {
  const complete = info.checkpoints.findIndex(({ state }) => state === "completed");
  const newer = complete === -1 ? info.checkpoints : info.checkpoints.slice(0, complete);
  const failed = newer.filter(({ state }) => state === "failed");
  const [last] = failed;
  if (last === undefined || info.state !== "RUNNING") return null;
  const [root] = info.exceptions;
  if (root !== undefined && root.at_ms > last.triggered_ms) return null; // a restart has given it up
  const many =
    failed.length === 1
      ? "The last checkpoint has failed"
      : `The last ${failed.length} checkpoints have failed`;
  return {
    tone: "warn",
    what: `${many}: ${last.reason ?? "nobody knows why"}`,
    task: null,
    vertex: null,
    atMs: last.triggered_ms,
    then: `Rows since the last good one are not visible yet. ${checkpointAdvice(last.reason ?? "")}`,
    page: "checkpoints",
  };
}

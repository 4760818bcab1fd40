import type { Action } from "./actions";
import { toldOfUpgrade } from "./upgrades";

/** What a browser can ask for: what is done to a job, and a replay of its dead letters. */
export type Asked = Action | "replay";

/** What somebody asked for, in the words of the API. */
export interface Wanted {
  readonly directory?: string;
  readonly parallelism?: Readonly<Record<string, number>>;
  readonly savepoint?: string;
  readonly config?: Readonly<Record<string, string>>;
}

/** What an upgrade has made by now. `why`: it goes back. `endedAt`: the step with which it was over. */
export interface Made {
  readonly savepoint?: string;
  readonly newJob?: string;
  readonly why?: string;
  readonly endedAt?: Step;
}

/**
 * keep: what was submitted of the job, so that it can be started again; ask; watch how it goes. Of an upgrade also: check
 * the changes, start the job with them, prove that it comes up, start the old one (back).
 */
export type Step = "keep" | "check" | "ask" | "watch" | "start" | "prove" | "back" | "over";
const STEPS: readonly unknown[] = [
  "keep",
  "check",
  "ask",
  "watch",
  "start",
  "prove",
  "back",
  "over",
] satisfies Step[];

/** What has come of a replay; null: it is not known. */
export interface Replayed {
  readonly letters: number | null;
  readonly failedAgain: number | null;
  readonly unread: number | null;
  /** An earlier one was gone on with, instead of what was asked for. */
  readonly goesOn: boolean;
  readonly failure: string | null;
}

export type Outcome =
  | {
      readonly is: "done";
      readonly location?: string;
      readonly resumable?: string;
      readonly parallelism?: Readonly<Record<string, number>>;
      readonly newJob?: string;
      readonly state?: string;
      readonly replay?: Replayed;
    }
  /** Nothing has changed, says the server. */
  | { readonly is: "refused"; readonly why: string }
  /** It was begun, and did not succeed. `location`: from where a job can start. */
  | { readonly is: "failed"; readonly why: string; readonly location?: string }
  /** The job with the changes did not come up, and the one before goes on as a new job. */
  | { readonly is: "went back"; readonly why: string; readonly newJob: string }
  /** Nobody knows it any more. */
  | { readonly is: "unknown"; readonly why: string };

/**
 * One thing that this browser has asked for. Its id is the trigger id, or the request id, of the API: asked again
 * with it, the same is done once. So it goes on after a reload, and after another JobManager has become the leader.
 */
export interface Operation {
  readonly id: string;
  readonly job: string;
  readonly action: Asked;
  readonly startedMs: number;
  readonly wanted: Wanted;
  readonly step: Step;
  readonly kept: boolean;
  readonly made?: Made;
  /** Why it could not go on last time, such as that nobody has answered; null: it could. */
  readonly trouble: string | null;
  readonly outcome: Outcome | null;
  /** The job that does it, as soon as there is one. */
  readonly byJob?: string;
}

export function begun(asked: Pick<Operation, "id" | "job" | "action" | "startedMs" | "wanted">): Operation {
  const endsJob = ["stop", "drain", "cancel", "upgrade"].includes(asked.action);
  return { ...asked, step: endsJob ? "keep" : "ask", kept: false, trouble: null, outcome: null };
}

/** A replay that the API has accepted: what is corrected stays on its page. */
export function replaying(asked: Pick<Operation, "id" | "job" | "startedMs">): Operation {
  return { ...begun({ ...asked, action: "replay", wanted: {} }), step: "watch" };
}

/** How many replays of a job are over: then its letters are others. */
export function replaysOver(operations: readonly Operation[], job: string): number {
  return operations.filter((one) => one.job === job && one.action === "replay" && one.step === "over").length;
}

/** What came of the last request. */
export type Told =
  | { readonly is: "accepted" }
  | { readonly is: "running"; readonly byJob?: string }
  | Extract<Outcome, { is: "done" }>
  | { readonly is: "refused"; readonly status: number; readonly why: string }
  /** What was begun has not come up. */
  | { readonly is: "failed"; readonly why: string }
  | { readonly is: "away"; readonly why: string };

const NOT_FOUND = 404;
const FORBIDDEN = 403;
/** Of a leader that gives up its jobs, and of proxies, also without a login: the same request may succeed later. */
const LATER = [401, 407, 502, 503, 504];

/** The operation after an answer. */
export function told(operation: Operation, answer: Told): Operation {
  if (operation.step === "over") return operation;
  if (operation.action === "upgrade") return toldOfUpgrade(operation, answer, LATER);
  if (answer.is === "failed") return over(operation, { is: "failed", why: answer.why });
  if (answer.is === "away") return { ...operation, trouble: answer.why };
  if (answer.is === "refused") return refused(operation, answer);
  const here = operation.trouble === null ? operation : { ...operation, trouble: null };
  switch (operation.step) {
    case "keep":
      return { ...here, step: "ask", kept: true };
    case "ask":
      return answer.is === "done" ? over(here, answer) : { ...here, step: "watch" };
    case "watch":
      if (answer.is === "done") return over(here, answer);
      return answer.is === "running" && answer.byJob !== undefined && answer.byJob !== here.byJob
        ? { ...here, byJob: answer.byJob }
        : here;
    case "check":
    case "start":
    case "prove":
    case "back":
      return here; // of upgrades alone
  }
}

function refused(operation: Operation, { status, why }: { status: number; why: string }): Operation {
  // What only asks is never refused by the cluster: a proxy does not let it pass.
  if (LATER.includes(status) || (operation.step === "watch" && status === FORBIDDEN))
    return { ...operation, trouble: why };
  switch (operation.step) {
    case "keep": // it has ended, say: the next request says so; only a start from here is not possible
      return { ...operation, step: "ask", trouble: null };
    case "ask":
      return over(operation, { is: "refused", why });
    case "watch":
    case "check":
    case "start":
    case "prove":
    case "back":
    case "over":
      return over(operation, { is: status === NOT_FOUND ? "unknown" : "failed", why });
  }
}

function over(operation: Operation, outcome: Outcome): Operation {
  return { ...operation, step: "over", trouble: null, outcome };
}

export const KEPT_MAX = 20;
export const KEPT_MS = 86_400_000;

/** Those that are worth keeping: none older than a day, the newest first. */
export function kept(operations: readonly Operation[], nowMs: number): Operation[] {
  return operations
    .filter(({ startedMs }) => Math.abs(nowMs - startedMs) < KEPT_MS)
    .sort((a, b) => b.startedMs - a.startedMs)
    .slice(0, KEPT_MAX);
}

/** What a browser has stored; what cannot be read, or is of another version, is nothing. */
export function parsed(text: string | null): Operation[] {
  try {
    const found: unknown = JSON.parse(text ?? "[]");
    return Array.isArray(found) ? found.filter(isOperation) : [];
  } catch (error) {
    if (error instanceof SyntaxError) return [];
    throw error;
  }
}

function isOperation(value: unknown): value is Operation {
  if (typeof value !== "object" || value === null) return false;
  const one = value as Partial<Record<keyof Operation, unknown>>;
  const isText = [one.id, one.job, one.action].every((part) => typeof part === "string");
  const hasEnd = one.step !== "over" || (typeof one.outcome === "object" && one.outcome !== null);
  return (
    isText &&
    typeof one.startedMs === "number" &&
    STEPS.includes(one.step) &&
    hasEnd &&
    typeof one.wanted === "object" &&
    one.wanted !== null
  );
}

import type { JobInfo } from "../api/schema";
import { waitsFor } from "./actions";
import type { Operation, Step, Told } from "./operations";
import { isOver } from "./states";

/**
 * An upgrade without new code: the job stops with a savepoint, and what was submitted of it starts from there with other
 * options or another parallelism. One operation; its requests are done once by ids that follow from its own, so it goes
 * on after a reload, in a second tab and under another JobManager.
 */
export function toldOfUpgrade(operation: Operation, answer: Told, later: readonly number[]): Operation {
  if (answer.is === "away") return { ...operation, trouble: answer.why };
  if (answer.is === "refused" && later.includes(answer.status)) return { ...operation, trouble: answer.why };
  const here: Operation = operation.trouble === null ? operation : { ...operation, trouble: null };
  if (answer.is === "refused" || answer.is === "failed") return gone(here, answer);
  const made = here.made ?? {};
  switch (here.step) {
    case "keep":
      return { ...here, step: "check", kept: true };
    case "check":
      return { ...here, step: "ask" };
    case "ask":
      return { ...here, step: "watch" };
    case "watch": {
      const savepoint = answer.is === "done" ? (answer.resumable ?? answer.location) : undefined;
      return savepoint === undefined ? here : { ...here, step: "start", made: { ...made, savepoint } };
    }
    case "start":
      return answer.is === "done" && answer.newJob !== undefined
        ? { ...here, step: "prove", made: { ...made, newJob: answer.newJob } }
        : here;
    case "prove":
      if (answer.is !== "done") return here;
      return over(here, { is: "done", ...(made.newJob === undefined ? {} : { newJob: made.newJob }) });
    case "back":
      return answer.is === "done" && answer.newJob !== undefined
        ? over(here, { is: "went back", why: made.why ?? "", newJob: answer.newJob })
        : here;
    case "over":
      return here;
  }
}

function gone(operation: Operation, { why, ...answer }: Extract<Told, { why: string }>): Operation {
  const made = operation.made ?? {};
  switch (operation.step) {
    case "keep":
    case "check":
    case "ask":
      return over(operation, { is: "refused", why });
    case "watch": {
      const unknown = answer.is === "refused" && answer.status === 404;
      return over(operation, { is: unknown ? "unknown" : "failed", why });
    }
    case "start":
    case "prove":
      return { ...operation, step: "back", made: { ...made, why } };
    case "back": {
      const both = `${made.why ?? ""} And the job as it was does not start again: ${why}`.trim();
      const location = made.savepoint === undefined ? {} : { location: made.savepoint };
      return over(operation, { is: "failed", why: both, ...location });
    }
    case "over":
      return operation;
  }
}

function over(operation: Operation, outcome: NonNullable<Operation["outcome"]>): Operation {
  const made = { ...operation.made, endedAt: operation.step };
  return { ...operation, step: "over", trouble: null, outcome, made };
}

export const RESTARTS_MAX = 3;

export type Proof =
  | { readonly is: "waits" | "proven" | "may take a checkpoint" }
  /** It keeps failing: it has to end before the old one starts, or both write the same rows. */
  | { readonly is: "has to end" }
  | { readonly is: "failed"; readonly why: string };

/** Whether the job with the changes has come up: it has, when its first checkpoint is complete. */
export function proofOf(
  job: Pick<JobInfo, "state" | "subtasks" | "checkpoints_completed" | "restarts" | "failure" | "exceptions">,
): Proof {
  if (job.checkpoints_completed > 0 || job.state === "FINISHED") return { is: "proven" };
  if (isOver(job.state)) {
    const why = job.failure?.message ?? job.exceptions[0]?.message;
    return { is: "failed", why: why ?? `It has ended as ${job.state}.` };
  }
  if (job.restarts >= RESTARTS_MAX) return { is: "has to end" };
  return { is: waitsFor(job) === null ? "may take a checkpoint" : "waits" };
}

/** One line of the list: what is done, and how far it is. */
export interface StepShown {
  readonly text: string;
  readonly state: "done" | "now" | "waits" | "failed";
}

const STEPS: readonly (readonly [steps: readonly Step[], text: string])[] = [
  [["keep"], "keep what was submitted of the job"],
  [["check"], "check the changes"],
  [["ask", "watch"], "stop the job with a savepoint"],
  [["start"], "start it from there with the changes"],
  [["prove"], "wait for its first checkpoint"],
];
const BACK = "start the job as it was, from the same savepoint";

export function stepsOf({ step, outcome, made }: Operation): StepShown[] {
  const wentBack = step === "back" || made?.endedAt === "back";
  const at = step === "over" ? (made?.endedAt ?? "keep") : step;
  const place = wentBack ? placeOfFailure(made?.newJob) : STEPS.findIndex(([steps]) => steps.includes(at));
  const failed = wentBack || (outcome !== null && outcome.is !== "done");
  const all: StepShown[] = STEPS.map(([, text], index) => {
    if (outcome?.is === "done" || index < place) return { text, state: "done" };
    if (index > place) return { text, state: "waits" };
    return { text, state: failed ? "failed" : "now" };
  });
  if (!wentBack) return all;
  const back = step === "back" ? "now" : outcome?.is === "went back" ? "done" : "failed";
  return [...all, { text: BACK, state: back }];
}

function placeOfFailure(newJob: string | undefined): number {
  return STEPS.findIndex(([steps]) => steps.includes(newJob === undefined ? "start" : "prove"));
}

/** Options by line, `key: value` or `key=value`; or the line that is none. */
export function optionsOf(
  text: string,
): { readonly config: Readonly<Record<string, string>> } | { readonly wrong: string } {
  const config: Record<string, string> = {};
  for (const line of text.split("\n").map((one) => one.trim())) {
    if (line === "" || line.startsWith("#")) continue;
    const found = /^([\w.-]+)\s*[:=]\s*(\S.*)$/.exec(line);
    if (found?.[1] === undefined || found[2] === undefined) return { wrong: line };
    config[found[1]] = found[2];
  }
  return { config };
}

/** For new code: the page has none. */
export function upgradeCommand(job: string): string {
  return `unistream upgrade ${job} MODULE:FUNCTION`;
}

/** The ids of the jobs that it starts: sent again, each is one job. */
export function requestIdOf(operation: string, step: "start" | "back"): string {
  return step === "start" ? `upgrade ${operation}` : `upgrade ${operation} back`;
}

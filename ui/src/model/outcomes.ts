import { count } from "../format/numbers";
import type { Asked, Operation, Replayed } from "./operations";
import type { Tone } from "./states";

/** A directory, and what it is for. */
export interface Place {
  readonly what: string;
  readonly path: string;
}

/** How an operation stands: what is said of it, and what is sensible next. */
export interface Saying {
  readonly tone: Tone;
  readonly title: string;
  readonly sentence: string;
  readonly places: readonly Place[];
  /** A line for a terminal that goes on from there. */
  readonly command: string | null;
  readonly newJob: string | null;
}

const NAMES: Record<Asked, string> = {
  savepoint: "Savepoint",
  rescale: "Change of the parallelism",
  upgrade: "Upgrade",
  stop: "Stop with a savepoint",
  drain: "Drain",
  cancel: "Cancellation",
  start: "Start from a restore point",
  replay: "Replay of dead letters",
};

/** `progress`: what is known of the snapshot that is being taken. */
export function sayingOf(operation: Operation, progress: string | null = null): Saying {
  const title = NAMES[operation.action];
  const plain = { title, places: [], command: null, newJob: operation.byJob ?? null };
  const { outcome } = operation;
  if (outcome === null) {
    const trouble = operation.trouble === null ? "" : ` ${operation.trouble} It is asked again.`;
    const known = progress === null || operation.step !== "watch" ? "" : ` ${progress}`;
    return {
      ...plain,
      tone: trouble === "" ? "busy" : "warn",
      sentence: `${phaseOf(operation)}${known}${trouble}`,
    };
  }
  switch (outcome.is) {
    case "refused":
      return { ...plain, tone: "bad", sentence: `Refused, and nothing has changed: ${outcome.why}` };
    case "failed":
      return {
        ...plain,
        tone: "bad",
        sentence: `It did not succeed: ${outcome.why}`,
        ...(outcome.location === undefined ? {} : placeOf(outcome.location)),
      };
    case "went back":
      return {
        ...plain,
        tone: "bad",
        sentence: `The job with the changes did not come up: ${ended(outcome.why)} The job as it was goes on from the same savepoint, as a new job.`,
        newJob: outcome.newJob,
      };
    case "unknown":
      return {
        ...plain,
        tone: "warn",
        sentence: `The JobManager that answers now does not know how it went: ${outcome.why}. ${whereToLook(operation.action)}`,
      };
    case "done":
      return { ...plain, ...doneOf(operation, outcome) };
  }
}

/** With a point, since another sentence follows. */
function ended(why: string): string {
  return /[.!?]$/.test(why) ? why : `${why}.`;
}

function phaseOf({ step, action }: Operation): string {
  switch (step) {
    case "keep":
      return "What was submitted of the job is kept, so that it can be started again.";
    case "ask":
      return "It is asked for.";
    case "check":
      return "The changes are checked; nothing has been stopped.";
    case "start":
      return "The job has stopped. It is being started with the changes.";
    case "prove":
      return "The new job has to complete a checkpoint.";
    case "back":
      return "The new job did not come up: the one before is being started again.";
    case "watch":
    case "over":
      return watchedOf(action);
  }
}

function watchedOf(action: Asked): string {
  switch (action) {
    case "savepoint":
      return "The savepoint is being taken.";
    case "rescale":
      return "Slots and a checkpoint come first, then the tasks start again.";
    case "upgrade":
    case "stop":
    case "drain":
      return "The savepoint is being taken, then sinks commit and the job ends.";
    case "cancel":
      return "The tasks are being cancelled.";
    case "start":
      return "The job is being started.";
    case "replay":
      return "Its job is cut from the pipeline, then it processes the letters.";
  }
}

function whereToLook(action: Asked): string {
  switch (action) {
    case "savepoint":
    case "upgrade":
    case "stop":
    case "drain":
      return "The list of checkpoints says whether there is a savepoint.";
    case "rescale":
      return "The graph says how wide the job is; ask again if need be.";
    case "cancel":
    case "start":
      return "The overview says what runs.";
    case "replay":
      return "The rows below say which letters were replayed. None is replayed twice, so it may be asked for again.";
  }
}

type Done = Extract<NonNullable<Operation["outcome"]>, { is: "done" }>;

function doneOf({ action }: Operation, done: Done): Pick<Saying, "tone" | "sentence"> & Partial<Saying> {
  const path = done.resumable ?? done.location ?? null;
  const command = path === null ? null : startCommand(path);
  const from: Place[] = path === null ? [] : [{ what: "A job can start from", path }];
  switch (action) {
    case "savepoint":
      return { tone: "good", sentence: "It is complete, and the job goes on.", places: from, command };
    case "stop":
      return {
        tone: "good",
        sentence: "The job has ended, and everything up to its savepoint is in the sinks.",
        places: from,
        command,
      };
    case "drain": {
      const proof =
        done.location === undefined || done.location === path
          ? []
          : [{ what: "After the end of all windows", path: done.location }];
      return {
        tone: "good",
        sentence: "The stream is done: all windows have fired, and the sinks have everything.",
        places: [...from, ...proof],
        command,
      };
    }
    case "cancel":
      return done.state === "CANCELED"
        ? { tone: "quiet", sentence: "The job is cancelled." }
        : { tone: "warn", sentence: `The job had ended before, as ${done.state ?? "nobody knows what"}.` };
    case "rescale": {
      const widths = Object.values(done.parallelism ?? {});
      const [least, most] = [Math.min(...widths), Math.max(...widths)];
      const range = least < most ? `${least} to ${most}` : String(most);
      return { tone: "good", sentence: `The job runs with it: ${range} subtasks a vertex.` };
    }
    case "start":
      return { tone: "good", sentence: "A new job goes on from there.", newJob: done.newJob ?? null };
    case "upgrade":
      return {
        tone: "good",
        sentence: "A new job goes on with the changes, and has a checkpoint.",
        newJob: done.newJob ?? null,
      };
    case "replay":
      return { ...replayed(done.state, done.replay), newJob: done.newJob ?? null };
  }
}

function replayed(state: string | undefined, found: Replayed | undefined): Pick<Saying, "tone" | "sentence"> {
  if (found === undefined || state === undefined) {
    const unread = found?.unread ?? 0;
    const why = unread > 0 ? `${count(unread)} are still no rows.` : "They were all replayed before.";
    return { tone: "quiet", sentence: `There was nothing to replay. ${why}` };
  }
  const letters = found.letters === null ? "An unknown number of letters was" : lettersOf(found.letters);
  const failed = found.failedAgain ?? 0;
  const anew = failed === 1 ? "is a new letter in its table" : "are new letters in their table";
  const again = failed > 0 ? `; ${count(failed)} failed again, and ${anew}` : "";
  const unread = (found.unread ?? 0) > 0 ? ` ${count(found.unread ?? 0)} more are still no rows.` : "";
  const earlier = found.goesOn
    ? " It was an earlier replay that had been cut off: ask again for what you wanted now."
    : "";
  if (state !== "FINISHED") {
    const why = found.failure === null ? "" : `: ${found.failure}`;
    return {
      tone: "bad",
      sentence: `${letters} replayed${again}; then its job ended as ${state}${why}. Replay again to go on: none is replayed twice.${earlier}`,
    };
  }
  const tone = failed > 0 || found.goesOn ? "warn" : "good";
  return { tone, sentence: `${letters} replayed${again}.${unread}${earlier}` };
}

function placeOf(path: string): Pick<Saying, "places" | "command"> {
  return { places: [{ what: "A job can start from", path }], command: startCommand(path) };
}

function lettersOf(letters: number): string {
  return letters === 1 ? "1 letter was" : `${count(letters)} letters were`;
}

/** For a POSIX shell, whatever the path has in it. */
export function startCommand(path: string): string {
  const word = /^[A-Za-z0-9_@%+=:,./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
  return `unistream run MODULE:FUNCTION -s ${word}`;
}

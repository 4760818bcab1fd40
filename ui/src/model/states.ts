import type { JobSummary, SubtaskInfo } from "../api/schema";

export type JobState = JobSummary["state"];
export type TaskState = SubtaskInfo["state"];

/** How a state is shown: the colours of `tokens.css`. */
export type Tone = "good" | "busy" | "warn" | "bad" | "quiet";

export function toneOfJob(state: JobState): Tone {
  switch (state) {
    case "RUNNING":
      return "good";
    case "INITIALIZING":
    case "CREATED":
    case "RECONCILING":
      return "busy";
    case "RESTARTING":
    case "FAILING":
    case "CANCELLING":
      return "warn";
    case "FAILED":
      return "bad";
    case "FINISHED":
    case "CANCELED":
    case "SUSPENDED":
      return "quiet";
  }
}

export function toneOfTask(state: TaskState): Tone {
  switch (state) {
    case "RUNNING":
      return "good";
    case "CREATED":
    case "SCHEDULED":
    case "DEPLOYING":
    case "INITIALIZING":
    case "RECONCILING":
      return "busy";
    case "CANCELING":
      return "warn";
    case "FAILED":
      return "bad";
    case "FINISHED":
    case "CANCELED":
      return "quiet";
  }
}

const WORST_FIRST: readonly Tone[] = ["bad", "warn", "busy", "good", "quiet"];

/** That of the subtask which needs a look most; quiet where there is none. */
export function toneOfVertex(states: ReadonlyMap<TaskState, number>): Tone {
  const tones = new Set([...states].flatMap(([state, number]) => (number > 0 ? [toneOfTask(state)] : [])));
  return WORST_FIRST.find((tone) => tones.has(tone)) ?? "quiet";
}

/** It never changes again in this cluster. */
export function isOver(state: JobState): boolean {
  return toneOfJob(state) === "quiet" || state === "FAILED";
}

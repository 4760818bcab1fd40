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

/** It never changes again in this cluster. */
export function isOver(state: JobState): boolean {
  return toneOfJob(state) === "quiet" || state === "FAILED";
}

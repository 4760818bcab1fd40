import type { CheckpointsInfo, JobInfo } from "../api/schema";
import { isOver } from "./states";

/** Why there is no state to look at, and what there is to do. */
export interface NoState {
  readonly what: string;
  readonly then: string;
}

/** Some snapshot may still be kept, so its absence is no matter of course. */
function mayHave({ latest, latest_completed, latest_savepoint, latest_restored }: CheckpointsInfo): boolean {
  const kept = [...latest, latest_completed, latest_savepoint].some(
    (one) => one?.status === "completed" && !one.discarded,
  );
  return kept || latest_restored !== null;
}

/**
 * Of a job whose cluster has found no snapshot. `wanted`: that snapshot alone was asked for. `said`: the words of the
 * cluster, for what is not known here.
 */
export function noStateOf(
  info: Pick<JobInfo, "job_type" | "state">,
  known: CheckpointsInfo | undefined,
  wanted: number | undefined,
  said: string,
): NoState {
  if (wanted !== undefined) {
    return {
      what: `Snapshot ${wanted} is not kept any more.`,
      then: "Newer checkpoints replace older ones; savepoints stay. Choose another one above.",
    };
  }
  if (info.job_type === "BATCH") {
    return {
      what: "A BATCH job takes no snapshots.",
      then: "Its state is what it computes with while it runs; there is none to look at.",
    };
  }
  if (known === undefined || mayHave(known)) return { what: said, then: "" };
  if (isOver(info.state) && known.completed === 0) {
    return {
      what: "There is no state of this job: it ended before its first checkpoint was complete.",
      then: "Exceptions say how it ended. What it was given is in Configuration.",
    };
  }
  return ofStream(info.state);
}

const KEEP = "execution.checkpointing.externalized-checkpoint-retention";

function ofStream(state: JobInfo["state"]): NoState {
  switch (state) {
    case "CANCELED":
      return {
        what: "No state is kept of this job: it was cancelled, and its checkpoints were deleted with it.",
        then: `Stop a job with a savepoint to keep its state, or set ${KEEP} to RETAIN_ON_CANCELLATION before it starts.`,
      };
    case "FINISHED":
      return {
        what: "No state is kept of this job: it has finished, and its checkpoints were deleted with it.",
        then: "What it has committed stays. A stop with a savepoint keeps the state, too.",
      };
    case "FAILED":
      return {
        what: "No state is kept of this job: it has failed, and its checkpoints were deleted with it.",
        then: `Set ${KEEP} to DELETE_ON_CANCELLATION or RETAIN_ON_CANCELLATION before it starts, and they stay.`,
      };
    case "CREATED":
    case "INITIALIZING":
    case "RECONCILING":
    case "RESTARTING":
    case "RUNNING":
    case "FAILING":
    case "CANCELLING":
    case "SUSPENDED":
      return {
        what: "There is no state to look at yet: no checkpoint is complete.",
        then: "The first one shows here by itself. A job without execution.checkpointing.interval takes none; a savepoint does as well.",
      };
  }
}

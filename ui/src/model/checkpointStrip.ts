import type { CheckpointFigures, CheckpointInfo, CheckpointsInfo } from "../api/schema";
import { totalsOf } from "./checkpoints";

/** One snapshot in the strip. `figures`: what each subtask did, of the newest ones only. */
export interface Bar {
  readonly id: number;
  readonly kind: CheckpointFigures["kind"];
  readonly status: CheckpointFigures["status"];
  readonly startedMs: number;
  /** Null: it is not over yet, as far as is known. */
  readonly durationMs: number | null;
  readonly stateBytes: number;
  readonly path: string | null;
  readonly reason: string | null;
  readonly figures: CheckpointFigures | null;
}

export const STRIP = 60;

const STATUS = { triggered: "in progress", completed: "completed", failed: "failed" } as const;

/** The last sixty, oldest first: those with all their figures, and before them those of which less is kept. */
export function stripOf(latest: CheckpointsInfo["latest"], older: readonly CheckpointInfo[]): Bar[] {
  const known = new Map<number, Bar>(older.map((one) => [one.checkpoint_id, ofInfo(one)]));
  for (const one of latest) known.set(one.checkpoint_id, ofFigures(one));
  return [...known.values()].sort((a, b) => a.id - b.id).slice(-STRIP);
}

function ofInfo(one: CheckpointInfo): Bar {
  return {
    id: one.checkpoint_id,
    kind: one.kind,
    status: STATUS[one.state],
    startedMs: one.triggered_ms,
    durationMs: one.duration_ms,
    stateBytes: one.state_bytes,
    path: one.path,
    reason: one.reason,
    figures: null,
  };
}

function ofFigures(one: CheckpointFigures): Bar {
  const { expected, stateBytes } = totalsOf(one);
  return {
    id: one.checkpoint_id,
    kind: one.kind,
    status: one.status,
    startedMs: one.timestamp_ms,
    durationMs: one.duration_ms,
    stateBytes: expected === 0 ? one.recorded_bytes : stateBytes,
    path: one.path,
    reason: one.reason,
    figures: expected === 0 ? null : one,
  };
}

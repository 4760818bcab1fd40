import type { CheckpointFigures } from "../api/schema";

export interface Phase {
  readonly name: "wait" | "alignment" | "sync" | "async";
  readonly ms: number;
}

/** What one subtask did for a checkpoint, phase after phase. */
export interface SubtaskPhases {
  readonly vertex: string;
  readonly index: number;
  readonly wholeMs: number;
  readonly newBytes: number;
  readonly phases: readonly Phase[];
}

/** Of each subtask that has acknowledged, the slowest first. */
export function phasesOf(figures: CheckpointFigures): SubtaskPhases[] {
  return figures.vertices
    .flatMap(({ name, subtasks }) =>
      subtasks.map((one) => ({
        vertex: name,
        index: one.index,
        wholeMs: one.acked_after_ms,
        newBytes: one.new_bytes,
        phases: [
          { name: "wait", ms: one.start_delay_ms },
          { name: "alignment", ms: one.alignment_ms },
          { name: "sync", ms: one.sync_ms },
          { name: "async", ms: one.async_ms },
        ] as const,
      })),
    )
    .sort((a, b) => b.wholeMs - a.wholeMs);
}

/** Subtasks that have not acknowledged, as people count them: from 1. */
export function missingOf({ vertices }: CheckpointFigures): { vertex: string; indexes: readonly number[] }[] {
  return vertices
    .filter(({ missing }) => missing.length > 0)
    .map(({ name, missing }) => ({ vertex: name, indexes: missing.map((index) => index + 1) }));
}

/** Over all subtasks: how many there are, how many have acknowledged, the bytes of their state, and what of it is new. */
export function totalsOf({ vertices }: CheckpointFigures): {
  expected: number;
  acked: number;
  stateBytes: number;
  newBytes: number;
} {
  const acked = vertices.flatMap(({ subtasks }) => subtasks);
  return {
    expected: vertices.reduce((sum, { subtasks, missing }) => sum + subtasks.length + missing.length, 0),
    acked: acked.length,
    stateBytes: acked.reduce((sum, { state_bytes }) => sum + state_bytes, 0),
    newBytes: acked.reduce((sum, { new_bytes }) => sum + new_bytes, 0),
  };
}

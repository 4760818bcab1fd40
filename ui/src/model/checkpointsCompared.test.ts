import { expect, test } from "vitest";

import type { CheckpointFigures } from "../api/schema";
import { comparedOf } from "./checkpointsCompared";

type Subtask = Partial<CheckpointFigures["vertices"][number]["subtasks"][number]>;

function figures(durationMs: number, vertices: Record<string, Subtask[]>): CheckpointFigures {
  const zero = { acked_after_ms: 0, start_delay_ms: 0, alignment_ms: 0, sync_ms: 0, async_ms: 0 };
  const empty = { ...zero, state_bytes: 0, new_bytes: 0, persisted_bytes: 0 };
  return {
    duration_ms: durationMs,
    vertices: Object.entries(vertices).map(([vertex, subtasks]) => ({
      vertex,
      name: `the ${vertex}`,
      subtasks: subtasks.map((one, index) => ({ ...empty, ...one, index })),
      missing: [],
    })),
  } as unknown as CheckpointFigures;
}

const A = figures(50, {
  source: [{ acked_after_ms: 9, sync_ms: 3, state_bytes: 100, new_bytes: 10 }],
  gone: [{ acked_after_ms: 40, alignment_ms: 30 }],
});
const B = figures(80, {
  source: [
    { acked_after_ms: 20, sync_ms: 7, state_bytes: 100, new_bytes: 100 },
    { acked_after_ms: 70, async_ms: 60, state_bytes: 50, persisted_bytes: 5, start_delay_ms: 4 },
  ],
});

test("two snapshots, figure by figure", () => {
  const found = Object.fromEntries(comparedOf(A, B).map(({ what, one, other }) => [what, [one, other]]));
  expect(found).toEqual({
    "From its start to its end": [50, 80],
    "Longest wait for a barrier": [0, 4],
    "Longest alignment": [30, 0],
    "Longest standstill": [3, 7],
    "Longest write": [0, 60],
    State: [100, 150],
    "Written for it": [10, 100],
    "Rows in flight in it": [0, 5],
    Subtasks: [2, 2],
    "Slowest of the source": [9, 70],
  });
});

test("snapshots of which no subtask is known have zeros, and no vertices", () => {
  expect(comparedOf(figures(1, {}), figures(2, {})).filter(({ one, other }) => one + other > 0)).toEqual([
    { what: "From its start to its end", unit: "ms", one: 1, other: 2 },
  ]);
});

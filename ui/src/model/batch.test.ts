import { describe, expect, test } from "vitest";

import type { StageProgress, SubtaskInfo } from "../api/schema";
import { type Stage, batchOf, pageOf, partOf } from "./batch";

function stage(more: Partial<StageProgress>): StageProgress {
  return {
    name: "s",
    tasks: 4,
    running: 0,
    finished: 0,
    failed: 0,
    rows_in: 0,
    rows_out: 0,
    shuffle_bytes: 0,
    ...more,
  };
}

function subtask(vertex: string, state: SubtaskInfo["state"], failedBefore = 0): SubtaskInfo {
  return {
    vertex,
    vertex_name: `name of ${vertex}`,
    state,
    past: Array.from({ length: failedBefore }, () => ({ state: "FAILED" })),
    metrics: { records_in: 10, records_out: 7 },
  } as unknown as SubtaskInfo;
}

function states(stages: readonly Stage[]): string[] {
  return stages.map(({ state }) => state);
}

describe("the stages that an engine runs", () => {
  test.each([
    ["nothing has begun", "CREATED", [stage({}), stage({})], ["waits", "waits"], 0],
    ["the first runs", "RUNNING", [stage({ running: 2, finished: 1 }), stage({})], ["runs", "waits"], 0],
    ["between two tasks", "RUNNING", [stage({ finished: 3 }), stage({})], ["runs", "waits"], 0],
    [
      "a slow task ran twice",
      "RUNNING",
      [stage({ finished: 5 }), stage({ running: 1 })],
      ["done", "runs"],
      1,
    ],
    ["one was repeated", "RUNNING", [stage({ failed: 1, finished: 4 })], ["done"], 1],
    ["it has failed there", "FAILED", [stage({ finished: 4 }), stage({ failed: 4 })], ["done", "failed"], 1],
    ["it was cancelled", "CANCELED", [stage({ finished: 2 })], ["waits"], 0],
    ["all of it", "FINISHED", [stage({ finished: 4 }), stage({ finished: 4 })], ["done", "done"], 2],
  ] as const)("%s", (_, state, stages, expected, done) => {
    const found = batchOf({ state, stages: [...stages], subtasks: [] });
    expect(states(found.stages)).toEqual(expected);
    expect(found.done).toBe(done);
  });

  test("no more tasks have finished than there are", () => {
    const found = batchOf({ state: "RUNNING", stages: [stage({ finished: 6 }), stage({})], subtasks: [] });
    expect([found.finished, found.tasks, partOf(found)]).toEqual([4, 8, 0.5]);
  });
});

test("on workers of the cluster a stage is a vertex, and nobody counts what is stored", () => {
  const subtasks = [
    subtask("a", "FINISHED"),
    subtask("b", "RUNNING", 1),
    subtask("a", "FINISHED"),
    subtask("c", "CREATED"),
  ];
  const { stages } = batchOf({ state: "RUNNING", stages: [], subtasks });
  expect(
    stages.map(({ name, state, tasks, failed, rowsOut, shuffleBytes }) => [
      name,
      state,
      tasks,
      failed,
      rowsOut,
      shuffleBytes,
    ]),
  ).toEqual([
    ["name of a", "done", 2, 0, 14, null],
    ["name of b", "runs", 1, 1, 7, null],
    ["name of c", "waits", 1, 0, 7, null],
  ]);
});

test("a job of which nothing is known has no stages", () => {
  const found = batchOf({ state: "FINISHED", stages: [], subtasks: [] });
  expect([found.stages, partOf(found)]).toEqual([[], 0]);
});

test.each([
  ["http://driver:4040", "http://driver:4040"],
  ["HTTPS://spark.example.com/ui", "HTTPS://spark.example.com/ui"],
  ["javascript:alert(1)", null],
  ["driver:4040", null],
  [null, null],
])("the page of Spark: %s", (url, expected) => {
  expect(pageOf(url)).toBe(expected);
});

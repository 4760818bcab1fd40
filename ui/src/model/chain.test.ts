import { describe, expect, it, test } from "vitest";

import type { JobInfo, SubtaskInfo, TaskManagerInfo } from "../api/schema";
import { placeOf, subtasksOf, workerOf } from "./chain";

test.each([
  [null, null],
  ["", null],
  ["/home/a/jobs/flights.py:12", "flights.py:12"],
  ["C:\\jobs\\flights.py:12", "flights.py:12"],
  ["<string>:1", "<string>:1"],
  ["/a b/über.py:3", "über.py:3"],
])("the line %s is shown as %s", (declared, short) => {
  expect(placeOf(declared)?.short ?? null).toBe(short);
  expect(placeOf(declared)?.whole ?? null).toBe(short === null ? null : declared);
});

function subtask(
  index: number,
  state: SubtaskInfo["state"],
  busy = 0,
  heldBack = 0,
  vertex = "v",
): SubtaskInfo {
  const metrics = { busy_per_s: busy, backpressured_per_s: heldBack };
  return { vertex, index, state, metrics } as SubtaskInfo;
}

describe("subtasks", () => {
  it("are those of the vertex, in trouble first, then the busiest, then those that wait, then in order", () => {
    const job = {
      subtasks: [
        subtask(0, "RUNNING", 10),
        subtask(1, "FINISHED", 0),
        subtask(2, "RUNNING", 900),
        subtask(3, "FAILED", 0),
        subtask(4, "DEPLOYING", 0),
        subtask(5, "RUNNING", 10, 500),
        subtask(6, "RUNNING", 10),
        subtask(7, "RUNNING", 1000, 0, "other"),
      ],
    } as unknown as JobInfo;
    expect(subtasksOf(job, "v").map(({ index }) => index)).toEqual([3, 4, 2, 5, 0, 6, 1]);
    expect(job.subtasks.map(({ index }) => index)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  });
});

test.each([
  [null, null],
  ["gone", "gone"],
  ["tm-1", "h1 · process 7"],
  ["tm-2", "h1 · tm-2"],
])("the worker %s is shown as %s", (id, shown) => {
  const workers = [
    { id: "tm-1", host: "h1", pid: 7 },
    { id: "tm-2", host: "h1", pid: null },
  ] as TaskManagerInfo[];
  expect(workerOf(workers, id)).toBe(shown);
});

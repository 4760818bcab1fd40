import { describe, expect, test } from "vitest";

import type { JobTimeline } from "../api/schema";
import { type Lane, lanesOf, moved, rangeOf, rowsOf, strokesOf, ticksOf, wholeOf, zoomed } from "./timeline";

const EMPTY: JobTimeline = {
  now_ms: 1_000,
  began_ms: 0,
  ended_ms: null,
  states: [{ at_ms: 0, state: "INITIALIZING" }],
  rescales: [],
  executions: [],
  checkpoints: [],
  commits: [],
  failures: [],
  incomplete: false,
};

const SNAPSHOT = {
  checkpoint_id: 1,
  kind: "checkpoint",
  state: "completed",
  triggered_ms: 100,
  duration_ms: 20,
  state_bytes: 0,
  path: null,
  reason: null,
} as const;

const EXECUTION = {
  vertex: "v",
  vertex_name: "map",
  attempt: 0,
  subtasks: 2,
  state: "FAILED",
  started_ms: 10,
  ended_ms: 50,
} as const;

describe("lanes", () => {
  test.each([
    ["a job that has just begun", {}, [["Job", 0, 1_000, "busy"]]],
    [
      "states follow each other, the last one until now",
      {
        states: [
          { at_ms: 0, state: "RUNNING" },
          { at_ms: 300, state: "RESTARTING" },
        ],
      },
      [
        ["Job", 0, 300, "good"],
        ["Job", 300, 1_000, "warn"],
      ],
    ],
    [
      "a clock that went back makes no negative time",
      { now_ms: 5, states: [{ at_ms: 9, state: "RUNNING" }] },
      [["Job", 9, 9, "good"]],
    ],
    [
      "an attempt that failed, and one that goes on",
      {
        executions: [
          EXECUTION,
          { ...EXECUTION, attempt: 1, state: "RUNNING", started_ms: 60, ended_ms: null },
        ],
      },
      [
        ["Job", 0, 1_000, "busy"],
        ["map", 10, 50, "bad"],
        ["map", 60, 1_000, "good"],
      ],
    ],
    [
      "snapshots by their kind",
      {
        checkpoints: [
          SNAPSHOT,
          { ...SNAPSHOT, kind: "savepoint", state: "failed", reason: "the disk is full" },
          { ...SNAPSHOT, state: "triggered", duration_ms: null },
        ],
      },
      [
        ["Job", 0, 1_000, "busy"],
        ["Checkpoints", 100, 120, "good"],
        ["Checkpoints", 100, 1_000, "busy"],
        ["Savepoints", 100, 120, "bad"],
      ],
    ],
    [
      "moments",
      {
        failures: [{ at_ms: 5, text: "ValueError: x", task: null }],
        rescales: [{ at_ms: 6, detail: "map: 1 to 2" }],
        commits: [{ at_ms: 7, sink: "out", checkpoint_id: 1, rows: 3, table_version: 9 }],
      },
      [
        ["Job", 0, 1_000, "busy"],
        ["Failures", 5, 5, "bad"],
        ["Rescales", 6, 6, "busy"],
        ["Commits of out", 7, 7, "good"],
      ],
    ],
  ])("%s", (_, changes, wanted) => {
    const lanes = lanesOf({ ...EMPTY, ...changes } as JobTimeline);
    expect(lanes.flatMap(({ name, items }) => items.map((i) => [name, i.fromMs, i.toMs, i.tone]))).toEqual(
      wanted,
    );
  });
});

const WHOLE = { fromMs: 0, toMs: 1_000 };

describe("the range", () => {
  test("a job without a length has one", () => {
    expect(wholeOf({ ...EMPTY, now_ms: 0 })).toEqual({ fromMs: 0, toMs: 100 });
  });

  test.each([
    ["none", null, null, [0, 1_000]],
    ["a part", 200, 600, [200, 600]],
    ["beyond the job", -50, 9_999, [0, 1_000]],
    ["the wrong way round", 600, 200, [0, 1_000]],
    ["only a beginning", 900, null, [900, 1_000]],
  ])("of a URL: %s", (_, from, to, [fromMs, toMs]) => {
    expect(rangeOf(WHOLE, from, to)).toEqual({ fromMs, toMs });
  });

  test.each([
    ["closer", { fromMs: 0, toMs: 1_000 }, 0.5, 0.5, [250, 750]],
    ["closer at its left", { fromMs: 0, toMs: 1_000 }, 0.5, 0, [0, 500]],
    ["never too close", { fromMs: 0, toMs: 100 }, 0.5, 0.5, [0, 100]],
    ["wider", { fromMs: 400, toMs: 600 }, 2, 0.5, [300, 700]],
    ["never wider than the job", { fromMs: 400, toMs: 900 }, 9, 0.5, [0, 1_000]],
  ])("%s", (_, range, factor, at, [fromMs, toMs]) => {
    expect(zoomed(WHOLE, range, factor, at)).toEqual({ fromMs, toMs });
  });

  test.each([
    [0.5, [500, 700]],
    [-9, [0, 200]],
    [9, [800, 1_000]],
  ])("moved by %s", (part, [fromMs, toMs]) => {
    expect(moved(WHOLE, { fromMs: 400, toMs: 600 }, part)).toEqual({ fromMs, toMs });
  });
});

describe("strokes", () => {
  const at = (fromMs: number, toMs: number, tone: "good" | "bad" = "good") => ({
    fromMs,
    toMs,
    tone,
    text: "t",
  });
  const drawn = (items: Lane["items"], range = WHOLE) =>
    strokesOf({ name: "x", items }, range, 0.01).map(({ left, width, tone, text }) => [
      left,
      width,
      tone,
      text,
    ]);

  test.each([
    ["its place", [at(250, 500)], [[0.25, 0.25, "good", "t"]]],
    ["a moment has a width", [at(100, 100)], [[0.1, 0.01, "good", "t"]]],
    [
      "two that are one stroke, the worse tone",
      [at(100, 100), at(101, 102, "bad")],
      [[0.1, 0.01, "bad", "t (and 1 more)"]],
    ],
    [
      "two that are not",
      [at(100, 100), at(200, 200)],
      [
        [0.1, 0.01, "good", "t"],
        [0.2, 0.01, "good", "t"],
      ],
    ],
    ["what is outside", [at(-9, -5), at(1_001, 1_002)], []],
    ["what is longer than the range", [at(-100, 5_000)], [[0, 1, "good", "t"]]],
  ])("%s", (_, items, wanted) => {
    expect(drawn(items)).toEqual(wanted);
  });

  test("ten thousand checkpoints are at most a stroke for each place", () => {
    const items = Array.from({ length: 10_000 }, (_, n) => at(n / 10, n / 10));
    expect(drawn(items).length).toBeLessThanOrEqual(101);
  });
});

test.each([
  [{ fromMs: 0, toMs: 10 }, [0, 2, 4, 6, 8, 10]],
  [{ fromMs: 1, toMs: 60_001 }, [15_000, 30_000, 45_000, 60_000]],
  [{ fromMs: 0, toMs: 86_400_000 }, [0, 21_600_000, 43_200_000, 64_800_000, 86_400_000]],
])("ticks of %j", (range, wanted) => {
  expect(ticksOf(range, 5)).toEqual(wanted);
});

test("rows are the newest of the range, in their order", () => {
  const item = (fromMs: number) => ({ fromMs, toMs: fromMs, tone: "good" as const, text: "" });
  const lanes = [
    { name: "a", items: [item(5), item(1)] },
    { name: "b", items: [item(3), item(9_000)] },
  ];
  expect(rowsOf(lanes, WHOLE, 2).map(({ lane, fromMs }) => [lane, fromMs])).toEqual([
    ["b", 3],
    ["a", 5],
  ]);
});

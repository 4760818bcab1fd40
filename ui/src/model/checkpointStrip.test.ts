import { describe, expect, test } from "vitest";

import type { CheckpointFigures, CheckpointInfo } from "../api/schema";
import { STRIP, stripOf } from "./checkpointStrip";

function older(id: number, state: CheckpointInfo["state"] = "completed"): CheckpointInfo {
  return {
    checkpoint_id: id,
    kind: "checkpoint",
    state,
    triggered_ms: id * 10,
    duration_ms: state === "triggered" ? null : 5,
    state_bytes: 7,
    path: null,
    reason: null,
  };
}

function full(id: number, subtasks = 1): CheckpointFigures {
  const done = Array.from({ length: subtasks }, (_, index) => ({ index, state_bytes: 100 }));
  return {
    checkpoint_id: id,
    kind: "checkpoint",
    status: "completed",
    timestamp_ms: id * 10,
    duration_ms: 5,
    recorded_bytes: 9,
    path: `/c/${id}`,
    reason: null,
    vertices: subtasks === 0 ? [] : [{ vertex: "v", name: "v", subtasks: done, missing: [] }],
  } as unknown as CheckpointFigures;
}

describe("the strip", () => {
  test.each([
    ["nothing yet", [], [], []],
    ["only those that are known in full", [full(2), full(1)], [], [1, 2]],
    ["older ones before them, each once", [full(3)], [older(3), older(2), older(1)], [1, 2, 3]],
    ["a savepoint between them", [full(9), full(8)], [older(7)], [7, 8, 9]],
  ])("%s", (_, latest, rest, wanted) => {
    expect(stripOf(latest, rest).map(({ id }) => id)).toEqual(wanted);
  });

  test("what is known in full counts, whatever the shorter record says", () => {
    const [bar] = stripOf([full(1)], [older(1, "triggered")]);
    expect([bar?.status, bar?.stateBytes, bar?.path, bar?.figures?.checkpoint_id]).toEqual([
      "completed",
      100,
      "/c/1",
      1,
    ]);
  });

  test("figures without subtasks are those of a record", () => {
    expect(stripOf([full(1, 0)], []).map(({ stateBytes, figures }) => [stateBytes, figures])).toEqual([
      [9, null],
    ]);
  });

  test("one that has begun has no duration", () => {
    expect(
      stripOf([], [older(1, "triggered")]).map(({ status, durationMs }) => [status, durationMs]),
    ).toEqual([["in progress", null]]);
  });

  test("the newest sixty", () => {
    const bars = stripOf(
      [],
      Array.from({ length: 80 }, (_, n) => older(80 - n)),
    );
    expect([bars.length, bars[0]?.id, bars.at(-1)?.id]).toEqual([STRIP, 21, 80]);
  });
});

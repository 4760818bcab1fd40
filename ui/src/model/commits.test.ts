import { describe, expect, it } from "vitest";

import type { JobCommits, SinkCommits, StagedOutput } from "../api/schema";
import { momentOf, notYet, waitingOf } from "./commits";

function staged(checkpoint_id: number, since_ms: number | null): StagedOutput {
  return { checkpoint_id, committables: 2, size: 10, since_ms };
}

describe("what waits", () => {
  it.each([
    ["is not known", null, { kind: "unknown" }],
    ["is nothing", [], { kind: "nothing" }],
    [
      "waits since the oldest of its checkpoints",
      [staged(4, 40), staged(5, 50)],
      { kind: "waits", committables: 4, bytes: 20, sinceMs: 40 },
    ],
    [
      "waits since nobody knows when",
      [staged(4, null)],
      { kind: "waits", committables: 2, bytes: 10, sinceMs: null },
    ],
  ])("%s", (_, given, waiting) => {
    expect(waitingOf({ plain: false, staged: given })).toEqual(waiting);
  });

  it.each([[null], [[]]])("never of a sink that commits nothing (%j)", (given) => {
    expect(waitingOf({ plain: true, staged: given })).toEqual({ kind: "never" });
  });
});

describe("what is in no commit yet", () => {
  const none: JobCommits = {
    now_ms: 10_000,
    checkpoint_id: null,
    taken_ms: null,
    why_unknown: null,
    sinks: [],
    commits: [],
  };
  const webHook: SinkCommits = {
    uid: "hook",
    plain: true,
    writes: ["https://hooks.example.org"],
    info: null,
    newest: null,
    staged: [],
  };
  it.each([
    ["where no sink commits", { ...none, sinks: [webHook] }, true, null],
    [
      "where one of two commits",
      { ...none, sinks: [webHook, { ...webHook, uid: "lake", plain: false }] },
      true,
      "There is no complete checkpoint yet, so nothing is committed.",
    ],
    ["a job that has ended", { ...none, checkpoint_id: 3, taken_ms: 1 }, false, null],
    [
      "before the first checkpoint",
      none,
      true,
      "There is no complete checkpoint yet, so nothing is committed.",
    ],
    [
      "while it runs",
      { ...none, checkpoint_id: 3, taken_ms: 7_600 },
      true,
      "Rows that came after checkpoint 3, 2 s ago, are in no commit yet.",
    ],
    [
      "a clock that differs",
      { ...none, checkpoint_id: 3, taken_ms: 90_000 },
      true,
      "Rows that came after checkpoint 3, 0 s ago, are in no commit yet.",
    ],
  ])("%s", (_, commits, runs, sentence) => {
    expect(notYet(commits, runs)).toBe(sentence);
  });
});

it.each([
  [null, null],
  [-(2 ** 63), null],
  [1_700_000_000_000, 1_700_000_000_000],
  [2 ** 63, "end"],
])("the watermark %s is %s", (watermark, moment) => {
  expect(momentOf(watermark)).toBe(moment);
});

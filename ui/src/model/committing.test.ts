import { describe, expect, test } from "vitest";

import type { CheckpointInfo, JobCommits, JobInfo, SinkCommits } from "../api/schema";
import { commitSentence, commitWaitsOf, mayWait } from "./committing";

type Staged = NonNullable<SinkCommits["staged"]>[number];

const staged = (id: number, committables: number, since_ms: number | null): Staged => ({
  checkpoint_id: id,
  committables,
  size: committables * 100,
  since_ms,
});

function commits(sinks: Readonly<Record<string, readonly Staged[] | null>>): JobCommits {
  return {
    now_ms: 100_000,
    checkpoint_id: 9,
    taken_ms: 99_000,
    why_unknown: null,
    commits: [],
    sinks: Object.entries(sinks).map(([uid, found]) => ({
      uid,
      plain: false,
      writes: [],
      info: null,
      newest: null,
      staged: found === null ? null : [...found],
    })),
  };
}

function job(
  committed: number | null,
  states: readonly CheckpointInfo["state"][],
  ended: number | null = null,
) {
  const checkpoints = states.map((state, index) => ({ checkpoint_id: index + 1, state }));
  const metrics = { "out committer.committedCommittables": 0 };
  const sinks = { out: { checkpoint_id: committed } };
  return { ended_ms: ended, sinks, checkpoints, metrics } as unknown as JobInfo;
}

describe("whether it is worth asking", () => {
  test.each([
    ["there is none yet", job(null, []), false],
    ["the newest is being committed", job(1, ["completed", "completed"]), false],
    ["two are not committed", job(1, ["completed", "completed", "completed"]), true],
    [
      "those that failed have nothing to commit",
      job(1, ["completed", "completed", "failed", "failed"]),
      false,
    ],
    ["nothing was ever committed", job(null, ["completed", "completed"]), true],
    ["the job has ended", job(null, ["completed", "completed"], 5), false],
    ["no sink has said anything yet", { ...job(null, ["completed", "completed"]), sinks: {} }, true],
    ["it may do so at once", { ...job(null, ["completed"]), sinks: {} }, false],
    ["the job has no sink", { ...job(null, ["completed", "completed"]), sinks: {}, metrics: {} }, false],
  ] as const)("%s", (_, info, wanted) => {
    expect(mayWait(info)).toBe(wanted);
  });
});

describe("what waits for its commit", () => {
  test.each([
    ["nothing is staged", { out: [] }, []],
    ["nobody knows", { out: null }, []],
    ["one checkpoint is on its way", { out: [staged(9, 3, 99_000)] }, []],
    ["an empty checkpoint is none", { out: [staged(8, 0, 98_000), staged(9, 3, 99_000)] }, []],
    ["two checkpoints", { out: [staged(8, 1, 98_000), staged(9, 3, 99_000)] }, [["out", 2, 4, 98_000]]],
    [
      "the longest first, and last of whom nobody knows since when",
      {
        short: [staged(8, 1, 98_000), staged(9, 1, 99_000)],
        unknown: [staged(8, 1, null), staged(9, 1, null)],
        long: [staged(3, 1, 93_000), staged(9, 1, 99_000)],
      },
      [
        ["long", 2, 2, 93_000],
        ["short", 2, 2, 98_000],
        ["unknown", 2, 2, null],
      ],
    ],
  ] as const)("%s", (_, sinks, wanted) => {
    const found = commitWaitsOf(commits(sinks));
    expect(found.map((one) => [one.sink, one.checkpoints, one.committables, one.sinceMs])).toEqual(wanted);
  });
});

describe("what is said of it", () => {
  const wait = { sink: "lake", checkpoints: 3, committables: 12, sinceMs: 40_000 };
  const ages = (last: number) => [
    { atMs: 60_000, value: 20_000 },
    { atMs: 100_000, value: last },
  ];
  test.each([
    ["for how long", wait, [], "lake waits for its commits: 3 checkpoints (12 committables)"],
    ["since when", wait, [], "the oldest for 1 min"],
    ["nobody knows since when", { ...wait, sinceMs: null }, [], "not visible. Its table"],
    ["the oldest one stays", wait, ages(60_000), "It gets worse."],
    ["as before", wait, ages(21_000), "about as long as before"],
    ["it catches up", wait, ages(5_000), "It gets better."],
  ] as const)("%s", (_, one, waited, words) => {
    expect(commitSentence(one, 100_000, waited)).toContain(words);
  });
});

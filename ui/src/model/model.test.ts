import { describe, expect, test } from "vitest";

import { KEPT_MS, OTHER_CLOCK_MS, type Sample, rateOf, ratesOf, sampled } from "./rates";
import { type TaskState, isOver, toneOfJob, toneOfVertex } from "./states";

const at = (atMs: number, value: number): Sample => ({ atMs, value });

function all(...samples: Sample[]): readonly Sample[] {
  return samples.reduce<readonly Sample[]>(sampled, []);
}

describe("rates", () => {
  test("one sample has none", () => {
    expect(rateOf([])).toBeNull();
    expect(rateOf(all(at(1_000, 5)))).toBeNull();
  });

  test("growth in a second", () => {
    expect(rateOf(all(at(1_000, 0), at(2_000, 100), at(3_000, 300)))).toBe(150);
  });

  test("old samples do not count", () => {
    expect(rateOf(all(at(0, 0), at(10_000, 1_000_000), at(15_000, 1_000_000)))).toBe(0);
  });

  test("an attempt that begins again is no negative rate", () => {
    const samples = all(at(1_000, 500), at(2_000, 900), at(3_000, 10), at(4_000, 30));
    expect(rateOf(samples)).toBe(20);
    expect(samples).toHaveLength(2);
  });

  test("the same picture twice, or an older one, changes nothing", () => {
    expect(all(at(2_000, 5), at(2_000, 5), at(1_000, 3))).toEqual([at(2_000, 5)]);
  });

  test.each([null, NaN, Infinity])(
    "a counter that is %s has no rate, nor does the first one after it",
    (value) => {
      const unknown = sampled(all(at(1_000, 5), at(2_000, 6)), { atMs: 3_000, value });
      expect(rateOf(unknown)).toBeNull();
      expect(rateOf(sampled(unknown, at(4_000, 900)))).toBeNull();
    },
  );

  test("the clock of another leader begins again", () => {
    const before = all(at(3_600_000, 5), at(3_601_000, 6));
    const other = sampled(before, at(3_601_000 - OTHER_CLOCK_MS - 1, 7));
    expect(rateOf(other)).toBeNull();
    expect(other).toHaveLength(1);
  });

  test("what is older than five minutes is forgotten", () => {
    expect(all(at(0, 0), at(KEPT_MS, 1))).toEqual([at(KEPT_MS, 1)]);
  });

  test("a line of rates", () => {
    expect(ratesOf(all(at(0, 0), at(1_000, 5), at(3_000, 5)))).toEqual([5, 0]);
  });
});

describe("states", () => {
  test.each([
    ["RUNNING", "good", false],
    ["RESTARTING", "warn", false],
    ["FAILED", "bad", true],
    ["FINISHED", "quiet", true],
    ["SUSPENDED", "quiet", true],
  ] as const)("%s", (state, tone, over) => {
    expect([toneOfJob(state), isOver(state)]).toEqual([tone, over]);
  });
});

test.each<[[TaskState, number][], ReturnType<typeof toneOfVertex>]>([
  [[], "quiet"],
  [[["RUNNING", 3]], "good"],
  [
    [
      ["FAILED", 0],
      ["RUNNING", 3],
    ],
    "good",
  ],
  [
    [
      ["RUNNING", 3],
      ["DEPLOYING", 1],
    ],
    "busy",
  ],
  [
    [
      ["CANCELED", 3],
      ["FAILED", 1],
    ],
    "bad",
  ],
  [
    [
      ["CANCELING", 1],
      ["FINISHED", 9],
    ],
    "warn",
  ],
])("a vertex has the tone of the subtask that needs a look: %j is %s", (states, tone) => {
  expect(toneOfVertex(new Map(states))).toBe(tone);
});

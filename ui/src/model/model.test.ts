import { describe, expect, test } from "vitest";

import { KEPT_MS, OTHER_CLOCK_MS, QUIET_MS, type Sample, fewer, rateOf, ratesOf, sampled } from "./rates";
import { type TaskState, isOver, toneOfJob, toneOfVertex } from "./states";

const at = (atMs: number, value: number): Sample => ({ atMs, value });

function all(...samples: Sample[]): readonly Sample[] {
  return samples.reduce<readonly Sample[]>(sampled, []);
}

describe("rates", () => {
  /** Counters that grow by 10 in a second each; every worker reports them each `everyMs`, at a time of its own. */
  function reported(everyMs: number, offsets: readonly number[], untilMs: number): readonly Sample[] {
    let samples: readonly Sample[] = [];
    for (let nowMs = 0; nowMs <= untilMs; nowMs += 1_000) {
      const values = offsets.map(
        (offset) => Math.max(0, Math.floor((nowMs - offset) / everyMs)) * (everyMs / 100),
      );
      samples = sampled(
        samples,
        at(
          nowMs,
          values.reduce((sum, one) => sum + one, 0),
        ),
      );
    }
    return samples;
  }

  test("one sample has none", () => {
    expect(rateOf([])).toBeNull();
    expect(rateOf(all(at(1_000, 5)))).toBeNull();
  });

  test("growth in a second, from step to step", () => {
    expect(rateOf(all(at(1_000, 0), at(2_000, 100), at(4_000, 200), at(7_000, 1_100)))).toBe(200);
  });

  test("two workers that report one after the other say nothing yet", () => {
    expect(rateOf(all(at(0, 0), at(1_000, 500), at(2_000, 900)))).toBeNull();
  });

  test("the first step is of an unknown time", () => {
    expect(rateOf(all(at(1_000, 0), at(2_000, 9_000)))).toBeNull();
  });

  test.each([
    ["one worker, each second", 1_000, [0], 20_000],
    ["one worker", 10_000, [0], 40_000],
    ["one worker, between its reports", 10_000, [0], 47_000],
    ["two workers at nearly the same time", 10_000, [0, 1_000], 51_000],
    ["two workers at nearly the same time, half of a report", 10_000, [0, 1_000], 50_000],
    ["workers one after the other", 10_000, [0, 2_000, 4_000, 6_000, 8_000], 60_000],
  ] as const)("%s", (_, everyMs, offsets, untilMs) => {
    const samples = reported(everyMs, offsets, untilMs);
    const wanted = 10 * offsets.length;
    expect(Math.abs((rateOf(samples) ?? 0) - wanted)).toBeLessThanOrEqual(0.15 * wanted);
    expect(Math.max(...ratesOf(samples))).toBeLessThanOrEqual(1.5 * wanted);
  });

  test("what stands still has a rate of zero, soon if it moved often", () => {
    const moved = all(at(0, 0), at(1_000, 10), at(3_000, 30), at(6_000, 60));
    expect(rateOf(sampled(moved, at(13_500, 60)))).toBe(10);
    const still = sampled(moved, at(13_501, 60));
    expect([rateOf(still), ratesOf(still)]).toEqual([0, [10, 0]]);
    expect(rateOf(all(at(0, 7), at(1_000, 7)))).toBeNull();
    expect(rateOf(all(at(0, 7), at(QUIET_MS, 7)))).toBe(0);
  });

  test.each([
    ["few stay as they are", [1, 2], [1, 2]],
    ["as many as may be", [1, 2, 3, 4], [1, 2, 3, 4]],
    ["the largest of each two", [1, 9, 3, 4, 5, 2, 7, 8], [9, 4, 5, 8]],
    ["the oldest share less", [9, 1, 2, 3, 5], [9, 2, 5]],
    ["none", [], []],
  ])("of the values of a line: %s", (_, values, shown) => {
    expect(fewer(values, 4)).toEqual(shown);
  });

  test("an attempt that begins again is no negative rate", () => {
    const samples = all(at(1_000, 500), at(2_000, 900), at(3_000, 10), at(4_000, 30), at(9_000, 130));
    expect(rateOf(samples)).toBe(20);
    expect(samples).toHaveLength(3);
  });

  test("the same picture twice, or an older one, changes nothing", () => {
    expect(all(at(2_000, 5), at(2_000, 5), at(1_000, 3))).toEqual([at(2_000, 5)]);
  });

  test("a counter that stands still for hours is two samples", () => {
    expect(all(at(0, 1), at(1_000, 5), at(2_000, 5), at(3_000, 5))).toEqual([
      at(0, 1),
      at(1_000, 5),
      at(3_000, 5),
    ]);
  });

  test.each([null, NaN, Infinity])(
    "a counter that is %s has no rate, nor do the first ones after it",
    (value) => {
      const unknown = sampled(all(at(1_000, 5), at(2_000, 6), at(3_000, 7)), { atMs: 4_000, value });
      expect(rateOf(unknown)).toBeNull();
      expect(rateOf(sampled(unknown, at(5_000, 900)))).toBeNull();
    },
  );

  test("the clock of another leader begins again", () => {
    const before = all(at(3_600_000, 5), at(3_601_000, 6));
    const other = sampled(before, at(3_601_000 - OTHER_CLOCK_MS - 1, 7));
    expect(other).toHaveLength(1);
  });

  test("what is older than five minutes is forgotten", () => {
    expect(all(at(0, 0), at(KEPT_MS, 1))).toEqual([at(KEPT_MS, 1)]);
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

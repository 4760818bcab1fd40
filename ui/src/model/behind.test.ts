import { describe, expect, test } from "vitest";

import { measured, trendOf, trendSentence } from "./behind";
import { KEPT_MS, OTHER_CLOCK_MS, type Sample } from "./rates";

const at = (atMs: number, value: number | null) => ({ atMs, value });

function all(...samples: { atMs: number; value: number | null }[]): readonly Sample[] {
  return samples.reduce<readonly Sample[]>(measured, []);
}

describe("samples of a measure", () => {
  test("go up and down", () => {
    expect(all(at(0, 5), at(1_000, 9), at(2_000, 3))).toEqual([at(0, 5), at(1_000, 9), at(2_000, 3)]);
  });

  test.each([
    ["not known", [at(0, 5), at(1_000, null)], []],
    ["NaN", [at(0, 5), at(1_000, Number.NaN)], []],
    ["known again", [at(0, 5), at(1_000, null), at(2_000, 7)], [at(2_000, 7)]],
    ["the same picture twice", [at(1_000, 5), at(1_000, 6)], [at(1_000, 5)]],
    ["another clock", [at(OTHER_CLOCK_MS + 2, 5), at(1, 6)], [at(1, 6)]],
    ["old ones go", [at(0, 5), at(KEPT_MS, 6)], [at(KEPT_MS, 6)]],
  ])("%s", (_, samples, wanted) => {
    expect(all(...samples)).toEqual(wanted);
  });
});

describe("the trend", () => {
  test.each([
    [[], null],
    [[at(0, 5)], null],
    [[at(0, 5), at(29_999, 500)], null],
    [[at(0, 0), at(30_000, 3_000)], 100],
    [[at(0, 3_000), at(10_000, 9_000), at(30_000, 0)], -100],
  ])("%j", (samples, wanted) => {
    expect(trendOf(all(...samples))).toBe(wanted);
  });

  test.each([
    [[], null],
    [[at(0, 0), at(60_000, 0)], null],
    [[at(0, 500)], "500 records are not read yet."],
    [[at(0, 1_000), at(60_000, 1_010)], "1,010 records are not read yet, about as many as before."],
    [[at(0, 0), at(60_000, 6_000)], "6,000 records are not read yet, 100 more each second: it gets worse."],
    [
      [at(0, 12_000), at(60_000, 6_000)],
      "6,000 records are not read yet, 100 fewer each second: caught up in about 1 min.",
    ],
  ])("%j in words", (samples, wanted) => {
    expect(trendSentence(all(...samples))).toBe(wanted);
  });
});

import { describe, expect, test } from "vitest";

import { bytes, compact, count, percent, rate } from "./numbers";
import { duration, isoTime, localTime, shortTime, utcTime } from "./times";

describe("numbers", () => {
  test.each([
    [count, 1_234_567, "1,234,567"],
    [count, 0, "0"],
    [count, null, "–"],
    [count, Number.NaN, "–"],
    [compact, 1_234_567, "1.2M"],
    [rate, 950, "950/s"],
    [rate, undefined, "–"],
    [bytes, 0, "0 B"],
    [bytes, 999, "999 B"],
    [bytes, 25_600, "25.6 kB"],
    [bytes, 999_949, "999.9 kB"],
    [bytes, 999_951, "1.0 MB"],
    [bytes, 200e9, "200.0 GB"],
    [bytes, 2e18, "2000.0 PB"],
    [percent, 0.42, "42 %"],
    [percent, Number.POSITIVE_INFINITY, "–"],
  ])("%o of %s", (format, value, text) => {
    expect(format(value)).toBe(text);
  });
});

describe("times", () => {
  test.each([
    [0, "0 ms"],
    [999.4, "999 ms"],
    [1_000, "1 s"],
    [59_990, "59.9 s"],
    [60_000, "1 min"],
    [725_000, "12 min 5 s"],
    [3_600_000, "1 h"],
    [273_600_000, "3 d 4 h"],
    [-5_000, "−5 s"],
    [null, "–"],
    [Number.NaN, "–"],
  ])("%s ms", (ms, text) => {
    expect(duration(ms)).toBe(text);
  });

  test("UTC says so", () => {
    expect(utcTime(1_795_960_800_000)).toBe("2026-11-29 14:00:00 UTC");
  });

  test.each([Number.NaN, Infinity, 2 ** 63, -(2 ** 63)])("%s is no moment", (ms) => {
    expect([localTime(ms), utcTime(ms), shortTime(ms, 1), shortTime(ms, 1e9)]).toEqual(Array(4).fill("–"));
    expect(isoTime(ms)).toBeNull();
  });

  test.each([
    [1_000, /:\d\d\.007/],
    [60_000, /:\d\d( [AP]M)?$/],
    [90_000_000, /Nov/],
  ])("on an axis of %s ms", (ofMs, wanted) => {
    expect(shortTime(1_795_960_800_007, ofMs)).toMatch(wanted);
  });
});

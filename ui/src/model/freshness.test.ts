import { describe, expect, test } from "vitest";

import type { LiveStatus } from "../api/live";
import { ServerClock } from "../api/serverClock";
import { STALE_MS, freshnessOf, otherVersion } from "./freshness";

const NOW = 1_000_000;
const GOOD: LiveStatus = {
  phase: "open",
  polls: false,
  heardMs: NOW - 1_000,
  shownMs: 0,
  lateSinceMs: null,
  serverVersion: "1",
  trouble: null,
  tickedMs: NOW,
  nowMs: NOW,
};

describe("how old the data of a page is", () => {
  test.each<[string, Partial<LiveStatus>, string, number | null]>([
    ["a stream", {}, "live", null],
    ["a stream that is opened again", { phase: "connecting" }, "connecting", null],
    ["nothing for long", { heardMs: NOW - STALE_MS - 1 }, "stale", NOW - STALE_MS - 1],
    ["nothing, and the stream is gone", { phase: "waiting", heardMs: 5 }, "stale", 5],
    ["just not too long", { heardMs: NOW - STALE_MS }, "live", null],
    [
      "a page that was hidden for long has just been shown",
      { heardMs: 5, shownMs: NOW - 100, phase: "connecting" },
      "connecting",
      null,
    ],
    ["and shows nothing new", { heardMs: 5, shownMs: NOW - STALE_MS - 1, phase: "connecting" }, "stale", 5],
    ["there never was an answer", { heardMs: null, phase: "connecting" }, "connecting", null],
    ["a hidden page says nothing", { heardMs: 5, phase: "hidden" }, "connecting", null],
    ["each second", { phase: "waiting", polls: true }, "polled", null],
    ["each second, and no answer", { phase: "waiting", polls: true, heardMs: 7 }, "stale", 7],
    ["something hangs in the cluster", { lateSinceMs: 11 }, "stale", 11],
    [
      "something hung when the stream broke",
      { lateSinceMs: 11, phase: "waiting", polls: true },
      "polled",
      null,
    ],
  ])("%s", (_, changes, kind, sinceMs) => {
    const found = freshnessOf({ ...GOOD, ...changes }, NOW);
    expect([found.kind, found.kind === "stale" ? found.sinceMs : null]).toEqual([kind, sinceMs]);
  });
});

test.each<[string, Partial<LiveStatus>, string]>([
  ["nobody answers", {}, "does not answer"],
  ["somebody else does", { trouble: "who are you?" }, "who are you?"],
])("why it is old: %s", (_, changes, part) => {
  const found = freshnessOf({ ...GOOD, heardMs: 5, ...changes }, NOW);
  expect(found.kind === "stale" ? found.why : "").toContain(part);
});

test.each([
  ["0.1.0", "0.1.0", false],
  ["0.1.0", "0.2.0", true],
  [null, "0.2.0", false],
  ["0.1.0", null, false],
])("a page of %s and a server of %s", (page, server, says) => {
  expect(otherVersion(page, server) !== null).toBe(says);
});

describe("the clock of the cluster", () => {
  const YEAR = 365 * 86_400_000;

  test("goes with that of the browser, however wrong that is", () => {
    const clock = new ServerClock();
    expect(clock.at(5)).toBeNull();
    clock.heard(YEAR + 1_000, 1_000);
    expect([clock.at(3_000), clock.localOf(YEAR + 3_000)]).toEqual([YEAR + 3_000, 3_000]);
  });

  test("does not tremble with the network, and follows a clock that was set", () => {
    const clock = new ServerClock();
    clock.heard(10_000, 10_000);
    clock.heard(11_000, 11_200);
    expect(clock.at(12_000)).toBe(12_000);
    clock.heard(12_000, 72_000);
    expect(clock.at(72_000)).toBe(12_000);
  });
});

import { expect, test } from "vitest";

import type { RunLink } from "../api/schema";
import { RUNS_MAX, assetsOf, runsOf } from "./runs";

function link(run: string, attachedMs: number, releasedMs: number | null = null, step = "orders"): RunLink {
  const watcher = { root_run: run, run, step, attempt: 0 };
  return {
    key: `dagster ${run} ${step}`,
    job: "j",
    watcher,
    attached_ms: attachedMs,
    heartbeat_ms: attachedMs,
    released_ms: releasedMs,
    version: 0,
  };
}

test.each([
  ["none", [], []],
  ["that which watches comes first", [link("old", 5), link("new", 9, 10)], ["old true", "new false"]],
  ["then the newest", [link("a", 1, 2), link("b", 3, 4)], ["b false", "a false"]],
  ["two steps of a run are two", [link("a", 1), link("a", 2, null, "other")], ["a true", "a true"]],
  ["a step once, as it is now", [link("a", 1, 2), link("a", 5)], ["a true"]],
])("%s", (_, links, wanted) => {
  expect(runsOf(links).map(({ run, watches }) => `${run} ${watches}`)).toEqual(wanted);
});

test("not too many", () => {
  expect(runsOf(Array.from({ length: 9 }, (_, n) => link(String(n), n)))).toHaveLength(RUNS_MAX);
});

test.each([
  ["parts", [["lake", "orders"]], ["lake/orders /assets/lake/orders"]],
  ["what a URL cannot hold", [["a/b", "c?d#é"]], ["a/b/c?d#é /assets/a%2Fb/c%3Fd%23%C3%A9"]],
  ["no key", [[]], []],
])("assets: %s", (_, keys, wanted) => {
  expect(assetsOf(keys).map(({ key, path }) => `${key} ${path}`)).toEqual(wanted);
});

import { describe, expect, test } from "vitest";

import type { JobSummary } from "../api/schema";
import { historyViewOf, lastedMs, questionOf, tablesOf } from "./history";

const EMPTY = { name: "", table: "", states: [], from: "", to: "" };

describe("the view of a URL", () => {
  test.each([
    [{}, {}],
    [
      { name: "orders", table: 7 },
      { name: "orders", table: "7" },
    ],
    [{ states: ["FAILED", "RUNNING", 3] }, { states: ["FAILED"] }],
    [{ states: "FAILED" }, {}],
    [{ from: "2026-11-29", to: "2026-99-01" }, { from: "2026-11-29" }],
    [{ from: "<script>" }, {}],
    [{ name: "x".repeat(999) }, { name: "x".repeat(300) }],
  ])("%j", (search, wanted) => {
    expect(historyViewOf(search)).toEqual({ ...EMPTY, ...wanted });
  });
});

describe("the question to the server", () => {
  test.each([
    [{}, {}],
    [
      { name: "a", table: "b" },
      { name: "a", table: "b" },
    ],
    [{ states: ["FAILED", "CANCELED"] as const }, { state: "FAILED,CANCELED" }],
    [{ states: ["FINISHED", "FAILED", "CANCELED", "SUSPENDED"] as const }, {}],
  ])("%j", (view, wanted) => {
    expect(questionOf({ ...EMPTY, ...view })).toEqual(wanted);
  });

  test("whole days of the browser's zone", () => {
    const { since, until } = questionOf({ ...EMPTY, from: "2026-11-29", to: "2026-11-29" });
    expect((until ?? 0) - (since ?? 0)).toBe(86_399_999);
    expect(new Date(since ?? 0).getHours()).toBe(0);
  });
});

const JOB = {
  submitted_ms: 10,
  ended_ms: 15,
  writes: { b: ["file:///b"], a: ["file:///a", "file:///b"] },
} as unknown as JobSummary;

test("tables, each once", () => {
  expect(tablesOf(JOB)).toEqual(["file:///a", "file:///b"]);
});

test.each([
  [15, 5],
  [5, 0],
  [null, null],
])("ended at %s", (ended_ms, wanted) => {
  expect(lastedMs({ ...JOB, ended_ms })).toBe(wanted);
});

import { expect, test } from "vitest";

import type { JobInList } from "../api/schema";
import { successorOf } from "./successor";

const ENDED = { job: "a", name: "flights", ended_ms: 100 };

function listed(job: string, name: string, submitted_ms: number): JobInList {
  return { summary: { job, name, submitted_ms }, figures: null } as JobInList;
}

test.each([
  ["none", [], null],
  ["the one that was started then", [listed("b", "flights", 100)], "b"],
  [
    "the newest",
    [listed("b", "flights", 101), listed("c", "flights", 900), listed("d", "flights", 102)],
    "c",
  ],
  ["not itself", [listed("a", "flights", 200)], null],
  ["not one of another name", [listed("b", "fares", 200)], null],
  ["not one that was there before", [listed("b", "flights", 99)], null],
])("the successor of a job: %s", (_, jobs, job) => {
  expect(successorOf(ENDED, jobs)?.job ?? null).toBe(job);
});

test("a job that runs has none", () => {
  expect(successorOf({ ...ENDED, ended_ms: null }, [listed("b", "flights", 200)])).toBeNull();
});

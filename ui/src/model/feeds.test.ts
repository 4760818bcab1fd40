import { describe, expect, test } from "vitest";

import type { JobInList } from "../api/schema";
import { feedsOf, linesOf, placeName } from "./feeds";

type State = JobInList["summary"]["state"];

let submitted = 0;

function job(id: string, reads: string[], writes: string[], state: State = "RUNNING"): JobInList {
  submitted += 1;
  const runs = !["FINISHED", "CANCELED", "FAILED", "SUSPENDED"].includes(state);
  return {
    summary: { job: id, name: id, state, submitted_ms: submitted, writes: { sink: writes } },
    figures: runs ? { reads, writes, behind: 5, most_held_back: 0 } : null,
  } as unknown as JobInList;
}

const RAW = "kafka://b:9092/raw";
const CLEAN = "kafka://b:9092/clean";
const LAKE = "file:///lake/orders";

function edges(jobs: readonly JobInList[]): string[] {
  return feedsOf(jobs).flatMap(({ id, reads }) => reads.map((source) => `${source} → ${id}`));
}

describe("jobs that feed each other", () => {
  test.each([
    ["none", [], []],
    ["one alone, though it reads and writes", [job("a", [RAW], [LAKE])], []],
    ["two that read the same", [job("a", [RAW], []), job("b", [RAW], [])], []],
    ["two that write the same", [job("a", [], [LAKE]), job("b", [], [LAKE])], []],
    [
      "one after the other; what nobody else has is left out",
      [job("a", [RAW], [CLEAN]), job("b", [CLEAN], [LAKE])],
      [`${CLEAN} → b`, `a → ${CLEAN}`],
    ],
    [
      "several writers and readers of one place",
      [job("a", [], [CLEAN]), job("b", [], [CLEAN]), job("c", [CLEAN], []), job("d", [CLEAN], [])],
      [`${CLEAN} → c`, `${CLEAN} → d`, `a → ${CLEAN}`, `b → ${CLEAN}`],
    ],
    ["a job that reads what it writes", [job("a", [CLEAN], [CLEAN])], [`${CLEAN} → a`, `a → ${CLEAN}`]],
    [
      "in a circle",
      [job("a", [RAW], [CLEAN]), job("b", [CLEAN], [RAW])],
      [`${RAW} → a`, `${CLEAN} → b`, `b → ${RAW}`, `a → ${CLEAN}`],
    ],
    [
      "two with one name",
      [
        { ...job("a", [], [CLEAN]), summary: { ...job("a", [], [CLEAN]).summary, name: "n" } },
        { ...job("b", [CLEAN], []), summary: { ...job("b", [CLEAN], []).summary, name: "n" } },
      ],
      [`${CLEAN} → b`, `a → ${CLEAN}`],
    ],
  ])("%s", (_, jobs, wanted) => {
    expect(edges(jobs).sort()).toEqual([...wanted].sort());
  });

  test("a writer that has ended is there as long as somebody reads, and no other writes", () => {
    const before = job("before", [], [CLEAN], "FINISHED");
    const failed = job("failed", [RAW], [CLEAN], "FAILED");
    const reader = job("reader", [CLEAN], []);
    expect(edges([before, failed, reader])).toEqual([`${CLEAN} → reader`, `failed → ${CLEAN}`]);
    expect(feedsOf([failed, reader])[0]).toMatchObject({ id: "failed", state: "FAILED", behind: null });
    const again = job("again", [RAW], [CLEAN]);
    expect(edges([before, failed, reader, again])).toEqual([`${CLEAN} → reader`, `again → ${CLEAN}`]);
  });

  test("ended readers are not", () => {
    expect(feedsOf([job("a", [], [CLEAN]), job("b", [CLEAN], [], "CANCELED")])).toEqual([]);
  });

  test("the same in words", () => {
    const jobs = [job("a", [RAW], [CLEAN]), job("b", [CLEAN], [])];
    const lines = linesOf(feedsOf(jobs)).map(({ place, writers, readers }) => [
      place.id,
      writers.map(({ id }) => id),
      readers.map(({ id, behind }) => [id, behind]),
    ]);
    expect(lines).toEqual([[CLEAN, ["a"], [["b", 5]]]]);
  });
});

test.each([
  ["kafka://b:9092/orders", "orders"],
  ["file:///lake/orders/", "orders"],
  ["s3://bucket/a/b", "b"],
  ["s3://bucket", "s3://bucket"],
  ["postgresql://h/db.public.orders", "db.public.orders"],
  ["file:///", "file:///"],
  ["kafka://b/<script>", "<script>"],
])("%s is called %s", (uri, wanted) => {
  expect(placeName(uri)).toBe(wanted);
});

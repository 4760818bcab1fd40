import { describe, expect, test } from "vitest";

import type { JobInList } from "../api/schema";
import { HITS_MAX, hitsOf } from "./search";

function job(name: string, more: Partial<JobInList["figures"]> | null, state = "RUNNING"): JobInList {
  const figures = more === null ? null : { reads: [], writes: [], vertices: [], ...more };
  return { summary: { job: `${name}0f`, name, state }, figures } as unknown as JobInList;
}

const ORDERS = job("orders", {
  reads: ["kafka://b:9092/Raw"],
  writes: ["file:///lake/sales"],
  vertices: [
    { id: "v1", name: "raw -> clean" },
    { id: "v2", name: "window" },
  ],
});

describe("what is found", () => {
  test.each([
    ["ORD", [["orders", "running", undefined]]],
    ["orders0f", [["orders", "orders0f", undefined]]],
    ["sales", [["orders", "writes file:///lake/sales", undefined]]],
    ["window", [["orders", "window", "v2"]]],
    [
      "raw",
      [
        ["orders", "reads kafka://b:9092/Raw", undefined],
        ["orders", "raw -> clean", "v1"],
      ],
    ],
    ["nothing", []],
  ])("by %s", (text, wanted) => {
    expect(hitsOf([ORDERS], text).map(({ name, what, vertex }) => [name, what, vertex])).toEqual(wanted);
  });

  test("running jobs come first, and there are not too many", () => {
    const many = Array.from({ length: 20 }, (_, n) => job(`done ${n}`, null, "FINISHED"));
    const hits = hitsOf([...many, job("done last", {})], "done");
    expect([hits.length, hits[0]?.name]).toEqual([HITS_MAX, "done last"]);
  });
});

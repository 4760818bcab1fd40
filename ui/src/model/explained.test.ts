import { describe, expect, test } from "vitest";

import { explainedOf } from "./explained";

const PLAN = {
  name: "orders",
  type: "BATCH",
  streamGraph: {
    nodes: [
      { id: 0, contents: "rows", uid: "rows", vertex: "a", maxParallelism: 128 },
      { id: 1, contents: "filter", uid: "filter-1", vertex: "a", predecessors: [{ id: 0, chained: true }] },
      {
        id: 2,
        contents: "files",
        uid: "files",
        vertex: "b",
        maxParallelism: 128,
        predecessors: [{ id: 1, chained: false, obstacle: "the edge is rebalance" }],
      },
    ],
  },
  jobGraph: {
    nodes: [
      { id: "a", parallelism: 2, description: "rows<br/>filter" },
      {
        id: "b",
        parallelism: 3,
        description: "files",
        inputs: [{ id: "a", ship_strategy: "REBALANCE", exchange: "blocking_reported" }],
      },
    ],
  },
  executionGraph: {
    subtasks: 5,
    regions: { count: 4 },
    vertices: [{ id: "a", name: "rows -> filter", maxParallelism: 128, slotSharingGroup: "default" }],
  },
};

describe("a file", () => {
  test.each([
    ["", "no JSON"],
    ["7", "no plan"],
    ["null", "no plan"],
    [JSON.stringify({ ...PLAN, jobGraph: null }), "no plan"],
    [JSON.stringify({ streamGraph: [], jobGraph: {}, executionGraph: {} }), "no plan"],
  ])("%s is refused", (text, why) => {
    expect(explainedOf(text)).toContain(why);
  });

  test("is read", () => {
    expect(explainedOf(JSON.stringify(PLAN))).toEqual({
      name: "orders",
      type: "BATCH",
      subtasks: 5,
      regions: 4,
      vertices: [
        {
          id: "a",
          name: "rows -> filter",
          parallelism: 2,
          maxParallelism: 128,
          slotSharingGroup: "default",
          operators: [
            { name: "rows", uid: "rows" },
            { name: "filter", uid: "filter-1" },
          ],
          inputs: [],
        },
        {
          id: "b",
          name: "files",
          parallelism: 3,
          maxParallelism: 128,
          slotSharingGroup: "",
          operators: [{ name: "files", uid: "files" }],
          inputs: [
            { id: "a", ship: "rebalance", exchange: "blocking reported", obstacle: "the edge is rebalance" },
          ],
        },
      ],
    });
  });

  test("with other things in it has no vertices", () => {
    const other = { streamGraph: {}, jobGraph: { nodes: [1, null] }, executionGraph: {} };
    expect(explainedOf(JSON.stringify(other))).toMatchObject({ name: "", vertices: [], subtasks: 0 });
  });
});

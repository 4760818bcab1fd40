import { describe, expect, test } from "vitest";

import { job, plan as planOf, subtask } from "../../stories/fixtures";
import { type Vertex, bottlenecksOf, pressure, verticesOf } from "./vertices";

function vertex(
  id: string,
  reads: string[],
  busy: number,
  heldBack: number,
  more: Partial<Vertex> = {},
): Vertex {
  return {
    id,
    name: id,
    parallelism: 1,
    reads,
    states: new Map(),
    recordsIn: 0,
    recordsOut: 0,
    busy,
    heldBack,
    watermarkMs: null,
    skew: null,
    ...more,
  };
}

describe("what the others wait for", () => {
  test.each([
    ["nothing waits", [vertex("a", [], 0.2, 0), vertex("b", ["a"], 0.3, 0)], null, null],
    [
      "the sink",
      [vertex("a", [], 0.1, 0.9), vertex("b", ["a"], 0.1, 0.9), vertex("c", ["b"], 0.7, 0)],
      "c",
      "sink",
    ],
    [
      "in the middle",
      [vertex("a", [], 0, 0.6), vertex("b", ["a"], 1, 0), vertex("c", ["b"], 0.1, 0)],
      "b",
      "operator",
    ],
    ["the source", [vertex("a", [], 0.97, 0), vertex("b", ["a"], 0.2, 0)], "a", "source"],
    [
      "of two the busier",
      [vertex("a", [], 0, 0.9), vertex("b", ["a"], 0.4, 0), vertex("c", ["a"], 0.9, 0)],
      "c",
      "sink",
    ],
  ] as const)("%s", (_, vertices, id, kind) => {
    const [found] = bottlenecksOf(vertices);
    expect([found?.vertex.id ?? null, found?.kind ?? null]).toEqual([id, kind]);
  });

  test("several, the busiest first", () => {
    const vertices = [vertex("a", [], 0, 0.9), vertex("b", ["a"], 0.4, 0), vertex("c", ["a"], 0.9, 0)];
    expect(bottlenecksOf(vertices).map(({ vertex: { id } }) => id)).toEqual(["c", "b"]);
  });

  test("keys that are not even are named", () => {
    const skewed = vertex("b", ["a"], 1, 0, { skew: 3.5, parallelism: 4 });
    expect(bottlenecksOf([vertex("a", [], 0, 0.9), skewed])[0]?.sentence).toContain("3.5 times its share");
  });
});

test.each([
  [0.1, "ok"],
  [0.11, "low"],
  [0.5, "low"],
  [0.51, "high"],
] as const)("pressure %s", (part, word) => {
  expect(pressure(part)).toBe(word);
});

describe("rows, and what is none", () => {
  const metrics = {
    records_in: 100,
    records_out: 2,
    user: { "files.numRecordsSend": 90, "f.user.numRecordsSend": 7 },
  };

  test.each([
    ["others read rows of it", {}, [100, 2]],
    ["a writer: its committables are no rows", { gives_rows: false }, [100, 90]],
    ["a committer", { takes_rows: false }, [null, 2]],
  ] as const)("%s", (_, more, then) => {
    const plan = { ...planOf(1), nodes: planOf(1).nodes.slice(0, 1) };
    const id = plan.nodes[0]?.id ?? "";
    const vertex = { id, name: "a", bounded: null, takes_rows: true, gives_rows: true, ...more };
    const [found] = verticesOf(plan, job([subtask(id, 0, metrics)], { vertices: [vertex] }));
    expect([found?.recordsIn, found?.recordsOut]).toEqual(then);
  });

  test("a sink that does not count is not known", () => {
    const plan = planOf(1);
    const id = plan.nodes[0]?.id ?? "";
    const vertex = { id, name: "a", bounded: null, takes_rows: true, gives_rows: false };
    expect(verticesOf(plan, job([subtask(id, 0)], { vertices: [vertex] }))[0]?.recordsOut).toBeNull();
  });
});

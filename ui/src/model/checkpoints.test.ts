import { describe, expect, test } from "vitest";

import type { CheckpointFigures } from "../api/schema";
import { missingOf } from "./checkpoints";
import { verticesOf } from "./vertices";

describe("subtasks that have not acknowledged", () => {
  test.each<[string, [string, number[]][], [string, number[]][]]>([
    ["all have", [["source", []]], []],
    [
      "in the order of the rows, counted from 1",
      [
        ["source", []],
        ["look up", [0, 2]],
        ["committer", [0]],
      ],
      [
        ["look up", [1, 3]],
        ["committer", [1]],
      ],
    ],
  ])("%s", (_, vertices, wanted) => {
    const figures = { vertices: vertices.map(([name, missing]) => ({ name, missing })) };
    expect(missingOf(figures as CheckpointFigures).map(({ vertex, indexes }) => [vertex, indexes])).toEqual(
      wanted,
    );
  });
});

test("a task that does not run is not busy, and a vertex without tasks has no watermark", () => {
  const metrics = { records_in: 4, records_out: 2, busy_per_s: 900, backpressured_per_s: 300, watermark: 7 };
  const plan = { nodes: ["a", "b", "c"].map((id) => ({ id, description: id, parallelism: 1 })) };
  const subtasks = [
    { vertex: "a", vertex_name: "a", state: "RUNNING", metrics },
    { vertex: "b", vertex_name: "b", state: "CANCELED", metrics },
  ];
  const found = verticesOf(
    plan as unknown as Parameters<typeof verticesOf>[0],
    { subtasks, vertices: [] } as unknown as Parameters<typeof verticesOf>[1],
  );
  expect(found.map(({ busy, heldBack, watermarkMs }) => [busy, heldBack, watermarkMs])).toEqual([
    [0.9, 0.3, 7],
    [0, 0, 7],
    [0, 0, null],
  ]);
});

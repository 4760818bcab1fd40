import { describe, expect, test } from "vitest";

import type { JobDetails } from "../api/schema";
import { changesOf, groupsOf, slotsOf, slotsSentence, widthOf } from "./widths";

type Shape = Pick<JobDetails, "vertices" | "plan">;

function shape(
  vertices: readonly (readonly [id: string, parallelism: number, slotSharing: string, most?: number])[],
  edges: readonly (readonly [source: string, target: string, ship: string])[],
): Shape {
  return {
    vertices: vertices.map(([id, parallelism, slotSharingGroupId, maxParallelism = 128]) => ({
      id,
      name: id.toUpperCase(),
      parallelism,
      slotSharingGroupId,
      maxParallelism,
    })) as unknown as Shape["vertices"],
    plan: {
      nodes: vertices.map(([id]) => ({
        id,
        inputs: edges
          .filter(([, target]) => target === id)
          .map(([source, , ship_strategy]) => ({ id: source, ship_strategy })),
      })),
    } as unknown as Shape["plan"],
  };
}

const CHAIN = shape(
  [
    ["a", 2, "default"],
    ["b", 2, "default", 64],
    ["c", 1, "default"],
    ["d", 3, "big"],
  ],
  [
    ["a", "b", "FORWARD"],
    ["b", "c", "HASH"],
    ["c", "d", "REBALANCE"],
  ],
);
const groups = groupsOf(CHAIN);

test("what a forward edge joins changes together, and as far as all of it can", () => {
  expect(groups.map(({ ids, names, parallelism, most }) => [ids, names, parallelism, most])).toEqual([
    [["a", "b"], ["A", "B"], 2, 64],
    [["c"], ["C"], 1, 128],
    [["d"], ["D"], 3, 128],
  ]);
});

test("forward edges in a row, and to one that is joined already", () => {
  const all = shape(
    [
      ["a", 1, "x"],
      ["b", 1, "x"],
      ["c", 1, "x"],
      ["d", 1, "x"],
    ],
    [
      ["a", "b", "FORWARD"],
      ["c", "d", "FORWARD"],
      ["b", "d", "FORWARD"],
      ["a", "d", "FORWARD"],
    ],
  );
  expect(groupsOf(all).map(({ ids }) => ids)).toEqual([["a", "b", "c", "d"]]);
});

describe("what is asked for", () => {
  test.each([
    [{}, {}],
    [{ a: 2 }, {}],
    [{ a: 4, c: 1 }, { a: 4 }],
    [
      { a: 1_000, d: 0 },
      { a: 64, d: 1 },
    ],
    [{ b: 9 }, {}],
  ])("%j", (widths: Record<string, number>, changes) => {
    expect(changesOf(groups, widths)).toEqual(changes);
  });

  test("is a whole number within its bounds", () => {
    const [first] = groups;
    expect(first && [-1, 2.4, 99].map((a) => widthOf(first, { a }))).toEqual([1, 2, 64]);
  });
});

describe("slots", () => {
  test.each([
    [{}, 5],
    [{ c: 4 }, 7],
    [{ a: 1, d: 1 }, 2],
  ])("%j needs %i", (widths: Record<string, number>, slots) => {
    expect(slotsOf(groups, widths)).toBe(slots);
  });

  test.each([
    [{}, 0, "It needs 5 slots, as now."],
    [{ d: 1 }, 0, "It needs 3 slots, 2 fewer than now."],
    [{ c: 4 }, 2, "It needs 7 slots, 2 more than now. 2 are free."],
    [
      { c: 4 },
      1,
      "It needs 7 slots, 2 more than now. 1 are free: it waits for more, and stays as it is if none come.",
    ],
    [{ c: 4 }, null, "It needs 7 slots, 2 more than now."],
  ])("%j with %s free", (widths: Record<string, number>, free, sentence) => {
    expect(slotsSentence(groups, widths, free)).toBe(sentence);
  });
});

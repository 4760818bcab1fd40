import { describe, expect, test } from "vitest";

import { type Placed, layered } from "./layered";

const STEPS = { along: 300, across: 100 };
const node = (id: string, ...reads: string[]): Placed => ({ id, reads });
const NAMES = Array.from({ length: 500 }, (_, index) => `v${index}`);

/** So many lanes; every third vertex also reads the lane beside it. */
function lanes(vertices: number, of: number): Placed[] {
  return NAMES.slice(0, vertices).map((id, index) =>
    index < of
      ? node(id)
      : node(id, `v${index - of}`, ...(index % 3 === 0 && index % of > 0 ? [`v${index - of - 1}`] : [])),
  );
}

describe("every node has a place of its own, and rows flow to the right", () => {
  test.each<[string, Placed[]]>([
    ["none", []],
    ["one", [node("a")]],
    ["a chain", [node("a"), node("b", "a"), node("c", "b")]],
    ["a diamond", [node("a"), node("b", "a"), node("c", "a"), node("d", "b", "c")]],
    ["a skipped layer", [node("a"), node("b", "a"), node("c", "b", "a")]],
    ["the reader stands before what it reads", [node("b", "a"), node("a")]],
    ["the same twice", [node("a"), node("b", "a", "a")]],
    ["all read one", [node("v0"), ...NAMES.slice(1).map((id) => node(id, "v0"))]],
    ["one reads all", [...NAMES.slice(1).map((id) => node(id)), node("v0", ...NAMES.slice(1))]],
    ["nothing is connected", NAMES.map((id) => node(id))],
    ["lanes", lanes(500, 10)],
  ])("%s", (_, graph) => {
    const places = layered(graph, STEPS);
    expect([...places.keys()].sort()).toEqual(graph.map(({ id }) => id).sort());
    const taken = [...places.values()];
    expect(taken.every(({ x, y }) => x >= 0 && y >= 0)).toBe(true);
    for (const along of new Set(taken.map(({ x }) => x))) {
      const column = taken.filter(({ x }) => x === along);
      const across = column.map(({ y }) => y).sort((a, b) => a - b);
      expect(across.slice(1).every((y, index) => y - (across[index] ?? 0) >= STEPS.across - 1e-6)).toBe(true);
    }
    for (const { id, reads } of graph) {
      for (const source of reads) expect(places.get(source)?.x).toBeLessThan(places.get(id)?.x ?? 0);
    }
  });
});

test.each<[string, Placed[]]>([
  ["of two", [node("a", "b"), node("b", "a")]],
  ["of one", [node("a", "a")]],
  ["behind a source", [node("s"), node("a", "s", "b"), node("b", "a")]],
  ["with a name that is not there", [node("a", "gone"), node("b", "a", "b")]],
])("a cycle %s ends, and nothing hides another one", (_, graph) => {
  const places = [...layered(graph, STEPS).values()].map(({ x, y }) => `${x} ${y}`);
  expect(new Set(places).size).toBe(graph.length);
});

test("lanes that do not touch each other are straight", () => {
  const places = layered(
    NAMES.slice(0, 400).map((id, index) => (index < 4 ? node(id) : node(id, `v${index - 4}`))),
    STEPS,
  );
  for (let index = 4; index < 400; index += 1) {
    expect(places.get(`v${index}`)?.y).toBe(places.get(`v${index - 4}`)?.y);
  }
});

test("branches of a fork do not cross", () => {
  const graph = ["a", "b", "c", "d"].flatMap((name) => [node(`${name}2`, `${name}1`), node(`${name}1`, "s")]);
  const places = layered([...graph.reverse(), node("s")], STEPS);
  const order = (layer: 1 | 2) =>
    ["a", "b", "c", "d"].sort(
      (one, other) => (places.get(`${one}${layer}`)?.y ?? 0) - (places.get(`${other}${layer}`)?.y ?? 0),
    );
  expect(order(2)).toEqual(order(1));
});

test("parts without a connection fill a picture that is a little wider than high", () => {
  const places = [
    ...layered(
      NAMES.map((id) => node(id)),
      STEPS,
    ).values(),
  ];
  const width = Math.max(...places.map(({ x }) => x)) + STEPS.along;
  const height = Math.max(...places.map(({ y }) => y)) + STEPS.across;
  expect(width / height).toBeGreaterThan(1);
  expect(width / height).toBeLessThan(2.5);
});

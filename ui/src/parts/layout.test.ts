import { describe, expect, test } from "vitest";

import type { Placed } from "../model/layered";
import { NODE, placesOf } from "./layout";

const node = (id: string, ...reads: string[]): Placed => ({ id, reads });
const placed = (graph: readonly Placed[], downwards = false) => {
  const places = placesOf(JSON.stringify(graph.map(({ id, reads }) => [id, reads])), downwards);
  return new Map(graph.map(({ id }) => [id, places.get(id) ?? { x: NaN, y: NaN }]));
};
const NAMES = Array.from({ length: 200 }, (_, index) => `v${index}`);
const chain = (of: number) =>
  NAMES.slice(0, of).map((id, at) => (at === 0 ? node(id) : node(id, `v${at - 1}`)));

describe.each([false, true])(
  "no box hides another one, and rows flow onwards; downwards: %s",
  (downwards) => {
    test.each<[string, Placed[]]>([
      ["none", []],
      ["one", [node("a")]],
      ["a chain", chain(5)],
      ["a diamond", [node("a"), node("b", "a"), node("c", "a"), node("d", "b", "c")]],
      ["a skipped layer", [node("a"), node("b", "a"), node("c", "b", "a")]],
      ["the same twice", [node("a"), node("b", "a", "a")]],
      ["names of an object's own", [node("__proto__"), node("constructor", "__proto__"), node("toString")]],
      ["parts without a connection", [...NAMES.slice(0, 30).map((id) => node(id)), node("b", "v0")]],
      ["as many as are laid out with care", chain(80)],
      ["one more", chain(81)],
      ["far more", chain(200)],
    ])("%s", (_, graph) => {
      const places = placed(graph, downwards);
      const taken = [...places.values()];
      expect(taken.every(({ x, y }) => x >= 0 && y >= 0)).toBe(true); // also: NaN is nowhere
      for (const [at, one] of taken.entries()) {
        for (const other of taken.slice(at + 1)) {
          expect(Math.abs(one.x - other.x) >= NODE.width || Math.abs(one.y - other.y) >= NODE.height).toBe(
            true,
          );
        }
      }
      const along = (id: string) => places.get(id)?.[downwards ? "y" : "x"] ?? NaN;
      for (const { id, reads } of graph)
        for (const source of reads) expect(along(source)).toBeLessThan(along(id));
    });
  },
);

test.each<[string, Placed[]]>([
  ["of two", [node("a", "b"), node("b", "a")]],
  ["of one", [node("a", "a")]],
  ["with a name that is not there", [node("a", "gone"), node("b", "a", "b")]],
])("a cycle %s ends, and every box has a place", (_, graph) => {
  const places = [...placed(graph).values()];
  expect(new Set(places.map(({ x, y }) => `${x} ${y}`)).size).toBe(graph.length);
  expect(places.every(({ x, y }) => x >= 0 && y >= 0)).toBe(true);
});

test("a chain is straight", () => {
  expect(new Set([...placed(chain(12)).values()].map(({ y }) => y)).size).toBe(1);
});

test("parts without a connection fill a picture instead of one long column", () => {
  const places = [...placed(NAMES.slice(0, 60).map((id) => node(id))).values()];
  expect(new Set(places.map(({ x }) => x)).size).toBeGreaterThan(2);
});

test("a graph that was laid out once is not again", () => {
  const shape = JSON.stringify(chain(7).map(({ id, reads }) => [id, reads]));
  expect(placesOf(shape, false)).toBe(placesOf(shape, false));
});

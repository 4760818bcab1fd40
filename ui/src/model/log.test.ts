import { describe, expect, test } from "vitest";

import type { JobLogLine } from "../api/schema";
import { LINES_KEPT, filtered, textOf, withNew } from "./log";

function line(seq: number, changes: Partial<JobLogLine> = {}): JobLogLine {
  const message = `line ${seq}`;
  return {
    seq,
    at_ms: 0,
    level: "INFO",
    logger: "orders",
    task: "map (1/2)",
    message,
    dropped: 0,
    ...changes,
  };
}

describe("new lines", () => {
  test.each([
    ["behind the known ones", [1, 2], [3], [1, 2, 3]],
    ["an answer that comes twice", [1, 2], [2, 3], [1, 2, 3]],
    ["an older answer", [5], [3, 4], [5]],
    ["none", [1], [], [1]],
  ])("%s", (_, known, more, wanted) => {
    const found = withNew(
      known.map((seq) => line(seq)),
      more.map((seq) => line(seq)),
    );
    expect(found.map(({ seq }) => seq)).toEqual(wanted);
  });

  test("nothing new is the same list, so that nothing is drawn again", () => {
    const known = [line(1)];
    expect(withNew(known, [line(1)])).toBe(known);
  });

  test("the oldest go", () => {
    const known = Array.from({ length: LINES_KEPT }, (_, seq) => line(seq + 1));
    const found = withNew(known, [line(LINES_KEPT + 1)]);
    expect([found.length, found[0]?.seq]).toEqual([LINES_KEPT, 2]);
  });
});

test.each([
  ["", "DEBUG", [1, 2, 3, 4]],
  ["", "WARNING", [2, 3]],
  ["BAD", "DEBUG", [2]],
  ["sink", "INFO", [3]],
  ["nothing", "DEBUG", []],
] as const)("filter %j from %s", (text, least, wanted) => {
  const lines = [
    line(1),
    line(2, { level: "ERROR", message: "bad row" }),
    line(3, { level: "AUDIT", task: "sink (1/1)" }),
    line(4, { level: "DEBUG" }),
  ];
  expect(filtered(lines, text, least).map(({ seq }) => seq)).toEqual(wanted);
});

test("text to be copied says what was dropped", () => {
  expect(textOf([line(1, { dropped: 7, message: "a\nb" })])).toBe(
    "… 7 lines of map (1/2) were dropped: it logs too much\n" +
      "1970-01-01T00:00:00.000Z INFO map (1/2) orders: a\nb",
  );
});

test("a line whose logger has set a time that no calendar has is copied all the same", () => {
  expect(textOf([line(1, { at_ms: 1e300 })])).toMatch(/^– /);
});

import { describe, expect, it } from "vitest";

import type { OperatorStates, StateShown } from "../api/schema";
import {
  isNumber,
  keyOf,
  placeOf,
  separated,
  shownRows,
  stateViewOf,
  suggestedQuery,
  valueOf,
  widthsOf,
} from "./savepointQuery";

function state(changes: Partial<StateShown>): StateShown {
  const none = { columns: null, keys: null, key_groups: null, pickled: false, rows: null, table: null };
  return { name: "s", kind: "value", size: 1, files: 1, ...none, ...changes };
}

function operator(...states: StateShown[]): OperatorStates {
  return {
    uid: "u",
    vertex: "v",
    parallelism: 1,
    max_parallelism: 128,
    finished: 0,
    watermark: null,
    states,
  };
}

const KEYED = state({
  keys: ["user"],
  columns: [
    { name: "__key_group", type: "uint16" },
    { name: "user", type: "string" },
    { name: "value", type: "int64" },
  ],
});

describe("the view of a URL", () => {
  it.each([
    [{}, {}],
    [
      { id: 12, sql: "SELECT 1" },
      { id: 12, sql: "SELECT 1" },
    ],
    [{ id: "12", sql: "  " }, {}],
    [{ id: -1, sql: 7 }, {}],
    [{ id: 1.5 }, {}],
    [{ sql: "x".repeat(20_001) }, {}],
  ])("%j is %j", (search, view) => {
    expect(stateViewOf(search)).toEqual(view);
  });
});

describe("the first query", () => {
  it.each([
    ["nothing to read", [operator()], ""],
    ["files of a backend", [operator(state({ rows: null }))], ""],
    [
      "the state with the most rows",
      [operator(state({ table: '"a/s"', rows: 1 })), operator(state({ table: '"b/""s"', rows: 9 }))],
      'SELECT * FROM "b/""s" LIMIT 100',
    ],
  ])("%s", (_, operators, sql) => {
    expect(suggestedQuery(operators)).toBe(sql);
  });
});

describe("the columns of a state", () => {
  it.each([
    ["keyed", KEYED, "user string", "value int64"],
    ["not known yet", state({}), null, null],
    ["a table of the operator", { ...KEYED, keys: null }, null, "user string, value int64"],
  ])("%s", (_, shown, key, value) => {
    expect([keyOf(shown), valueOf(shown)]).toEqual([key, value]);
  });
});

describe("the place of an error", () => {
  it.each([
    ["line 1, column 8: no", "SELECT x", 7],
    ["line 2, column 6: no", "SELECT *\nFROM t", 14],
    ["line 1, column 5: no", "'😀' x", 5],
    ["line 9, column 9: no", "SELECT 1", 8],
    ["the statement is too long", "SELECT 1", null],
  ])("%s in %j is %j", (refusal, sql, place) => {
    expect(placeOf(refusal, sql)).toBe(place);
  });
});

describe("copied rows", () => {
  const columns = [
    { name: "a,b", type: "VARCHAR" },
    { name: "c", type: "BIGINT" },
  ];
  it.each([
    [",", '"a,b",c\r\n"say ""hi""\n",1\r\n,2\r\n"",3'],
    ["\t", 'a,b\tc\r\n"say ""hi""\n"\t1\r\n\t2\r\n""\t3'],
  ] as const)("separated by %j", (by, text) => {
    const rows = [
      ['say "hi"\n', "1"],
      [null, "2"],
      ["", "3"],
    ];
    expect(separated({ columns, rows }, by)).toBe(text);
  });
  it("have widths that do not depend on where one has scrolled to", () => {
    expect(widthsOf({ columns, rows: [["x".repeat(90), "1"]] })).toEqual([48, 8]);
  });
});

it.each([
  ["BIGINT", true],
  ["UTINYINT", true],
  ["INTEGER", true],
  ["DECIMAL(5,2)", true],
  ["DOUBLE", true],
  ["VARCHAR", false],
  ["INTEGER[]", false],
  ["INTERVAL", false],
  ["TIMESTAMP", false],
])("%s is a number: %s", (type, number) => {
  expect(isNumber(type)).toBe(number);
});

describe("rows that are drawn", () => {
  it.each([
    [{ top: 0, height: 300 }, 10_000, { first: 0, last: 22 }],
    [{ top: 30_000, height: 300 }, 10_000, { first: 988, last: 1022 }],
    [{ top: 0, height: 300 }, 3, { first: 0, last: 3 }],
    [{ top: 90_000, height: 300 }, 3, { first: 2988, last: 3 }],
  ])("%j of %d", (seen, count, shown) => {
    expect(shownRows(seen, 30, count)).toEqual(shown);
  });
});

import { describe, expect, test } from "vitest";

import { EMPTY_DRAFT, bodyOf, toneOf } from "./submission";

const DRAFT = { ...EMPTY_DRAFT, entryPoint: " flights.pipeline:build " };

test("empty fields are left to the cluster", () => {
  expect(bodyOf(DRAFT)).toEqual({
    entryPoint: "flights.pipeline:build",
    parameters: {},
    parallelism: null,
    name: null,
    savepoint: null,
    allowNonRestored: false,
    config: {},
  });
});

test("what stands in the fields is asked for", () => {
  const draft = {
    ...DRAFT,
    parameters: '{"limit": 10, "lake": ["a", null]}',
    parallelism: " 3 ",
    name: " mine ",
    savepoint: " s3://a/b ",
    config: "a.b = c=d \n\n e=",
  };
  expect(bodyOf(draft)).toMatchObject({
    parameters: { limit: 10, lake: ["a", null] },
    parallelism: 3,
    name: "mine",
    savepoint: "s3://a/b",
    config: { "a.b": "c=d", e: "" },
  });
});

describe("one sentence says what is wrong", () => {
  test.each([
    ["parameters that are no JSON", { parameters: "limit=10" }, "no JSON"],
    ["a list of parameters", { parameters: "[1]" }, "no object"],
    ["a parameter without a name", { parameters: "null" }, "no object"],
    ["no number", { parallelism: "two" }, "from 1 to 32768"],
    ["none of them", { parallelism: "0" }, "from 1 to 32768"],
    ["half a one", { parallelism: "1.5" }, "from 1 to 32768"],
    ["no end", { parallelism: "1e999" }, "from 1 to 32768"],
    ["an option without a value", { config: "a.b" }, "“a.b” has not"],
    ["an option without a name", { config: "=c" }, "“=c” has not"],
    ["an option twice", { config: "a=1\na=2" }, "stands here twice"],
  ])("%s", (_, fields, why) => {
    expect(bodyOf({ ...DRAFT, ...fields })).toContain(why);
  });
});

test("an option may be called as a property of each object", () => {
  const body = bodyOf({ ...DRAFT, config: "__proto__=x", parameters: '{"__proto__": 1}' });
  expect(JSON.parse(JSON.stringify(body))).toHaveProperty("config");
  expect(({} as Record<string, unknown>)["x"]).toBeUndefined();
});

test.each([
  ["kept", "good"],
  ["new", "good"],
  ["migrated", "busy"],
  ["dropped", "warn"],
  ["unknown until it runs", "warn"],
  ["refused", "bad"],
] as const)("%s is %s", (outcome, tone) => {
  expect(toneOf(outcome)).toBe(tone);
});

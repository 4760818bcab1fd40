import { describe, expect, it } from "vitest";

import { commandsOf, editsCommand, failingOf, lettersTables, shellWord, tableArgument } from "./deadLetters";

it("operators that fail for most rows come first", () => {
  expect(failingOf({ dead_letters: { a: 1, b: 5 }, skipped_rows: { c: 9, a: 1 } })).toEqual([
    { operator: "c", letters: 0, skipped: 9 },
    { operator: "b", letters: 5, skipped: 0 },
    { operator: "a", letters: 1, skipped: 1 },
  ]);
});

it("sinks that are called after dead letters come first", () => {
  const writes = { lake: ["file:///lake"], "fares-dead-letters": ["file:///dead"], dead: ["s3://b/dead"] };
  expect(lettersTables(writes).map(({ uid, sure }) => [uid, sure])).toEqual([
    ["fares-dead-letters", true],
    ["dead", false],
    ["lake", false],
  ]);
});

describe("words of a shell", () => {
  it.each([
    ["/lake/dead", "/lake/dead"],
    ["a b", "'a b'"],
    ["$(rm -rf /)", "'$(rm -rf /)'"],
    ["it's", `'it'"'"'s'`],
    ["", "''"],
    ["a\nb", "'a\nb'"],
  ])("%j is %j", (text, word) => {
    expect(shellWord(text)).toBe(word);
  });
});

describe("the table of a command", () => {
  it.each([
    ["file:///lake/fares%20dead", "'/lake/fares dead'"],
    ["s3://bucket/dead", "s3://bucket/dead"],
    ["kafka://localhost:9092/dead", null],
    ["postgresql://db/dead", null],
  ])("%s is %j", (uri, word) => {
    expect(tableArgument(uri)).toBe(word);
  });
});

describe("the commands", () => {
  it.each([
    [
      { operator: "", error: "", pipeline: "" },
      {
        list: "unistream dead-letters list /dead",
        show: "unistream dead-letters show /dead",
        replay: "unistream dead-letters replay /dead MODULE:FUNCTION",
      },
    ],
    [
      { operator: "a b", error: "ValueError", pipeline: " fares:build " },
      {
        list: "unistream dead-letters list /dead",
        show: "unistream dead-letters show /dead --operator 'a b' --error ValueError",
        replay: "unistream dead-letters replay /dead fares:build --operator 'a b' --error ValueError",
      },
    ],
  ])("of %j", (choice, commands) => {
    expect(commandsOf("/dead", choice)).toEqual(commands);
  });
});

it.each([
  ["", "unistream dead-letters replay lake/dead MODULE:FUNCTION --edits edits.jsonl"],
  [" fares:build ", "unistream dead-letters replay lake/dead fares:build --edits edits.jsonl"],
])("corrections are replayed by %j", (pipeline, wanted) => {
  expect(editsCommand("lake/dead", { pipeline })).toBe(wanted);
});

import { describe, expect, test } from "vitest";

import type { LetterShown } from "../api/schema";
import { corrected, fileOf, wrongIn } from "./corrections";

const LETTER = { letter: "a", row: '{"n":9007199254740993,"fare":"free"}' } as LetterShown;

describe("corrections", () => {
  test("come, change and go again", () => {
    const one = corrected(new Map(), LETTER, "x");
    expect([...one]).toEqual([["a", "x"]]);
    expect([...corrected(one, LETTER, "y")]).toEqual([["a", "y"]]);
    expect([...corrected(one, LETTER, LETTER.row)]).toEqual([]);
    expect([...one]).toEqual([["a", "x"]]);
  });

  test.each([
    [LETTER.row.replace("free", "120"), null],
    ['{"n": 1,\n "fare": null}', null],
    ["", "This is no JSON object."],
    ["[]", "This is no JSON object."],
    ["null", "This is no JSON object."],
    ['{"n": 1}', "Column fare is missing; null is written as null."],
    ['{"n": 1, "fare": "", "more": 1}', "The row has no column more."],
  ])("%s", (text, wanted) => {
    expect(wrongIn(LETTER, text, false)).toBe(wanted);
  });

  test("a record is any text", () => {
    expect(wrongIn(LETTER, "{", true)).toBeNull();
  });

  test("keep their digits in the file", () => {
    const rows = corrected(new Map(), LETTER, LETTER.row.replace("993", "995"));
    const [line = ""] = fileOf(rows, false).split("\n");
    expect(JSON.parse(line)).toEqual({ letter: "a", row: '{"n":9007199254740995,"fare":"free"}' });
    expect(fileOf(new Map([["b", "é\n"]]), true)).toBe('{"letter":"b","raw":"é\\n"}\n');
  });
});

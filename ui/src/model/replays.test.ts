import { describe, expect, test } from "vitest";

import type { LetterGroup, LetterShown, ReplayOperation } from "../api/schema";
import { begun, replaying, replaysOver, told } from "./operations";
import { sayingOf } from "./outcomes";
import { chosenOf, leftOf, replayBody, replayTold, wrongAmong } from "./replays";

const ALL = { operator: "", error: "" };

const group = (more: Partial<LetterGroup>): LetterGroup => ({
  operator: "parse",
  operator_uid: "fares",
  error_type: "ValueError",
  letters: 3,
  replayed: 1,
  attempts: 1,
  first_ms: null,
  last_ms: null,
  ...more,
});

const operation = (more: Partial<NonNullable<ReplayOperation["operation"]>>): ReplayOperation => ({
  status: { id: "COMPLETED" },
  operation: {
    job: "2",
    state: "FINISHED",
    letters: 3,
    failed_again: 0,
    unread: 0,
    goes_on: false,
    failure: null,
    ...more,
  },
});

describe("what is replayed", () => {
  const groups = [group({}), group({ operator: "count", operator_uid: "counts", letters: 1, replayed: 0 })];

  test.each([
    [ALL, 3],
    [{ operator: " fares ", error: "" }, 2],
    [{ operator: "count", error: "" }, 1],
    [{ operator: "", error: "KeyError" }, 0],
  ])("%j", (choice, left) => {
    expect(leftOf(groups, choice)).toBe(left);
  });

  test("is said", () => {
    expect(chosenOf(groups, ALL, new Map())).toBe("3 letters");
    expect(chosenOf(groups, ALL, new Map([["a", "{}"]]))).toBe("1 corrected letter");
  });

  test.each([
    [false, { letter: "a", row: "{}", raw: null }],
    [true, { letter: "a", row: null, raw: "{}" }],
  ])("of records: %s", (areRecords, correction) => {
    const asked = { table: "file:///t", triggerId: "ab", fromEmptyState: false };
    const body = replayBody(asked, { operator: " fares", error: "" }, new Map([["a", "{}"]]), areRecords);
    expect(body).toEqual({ ...asked, operator: "fares", error: "", letters: [], corrections: [correction] });
  });

  test("is not what is no row", () => {
    const letters = ["a", "b"].map((letter) => ({ letter, row: '{"n":1}' }) as LetterShown);
    expect(wrongAmong(letters, new Map([["a", '{"n":2}']]), false)).toBe(null);
    expect(wrongAmong(letters, new Map([["a", "{"]]), false)).toBe("One correction is no row yet.");
    expect(wrongAmong(letters, new Map([["a", "{"]]), true)).toBe(null);
  });
});

describe("how it goes", () => {
  const asked = replaying({ id: "ab", job: "1", startedMs: 1_000 });

  test("is watched from the beginning, and its job is known while it runs", () => {
    expect(asked.step).toBe("watch");
    const made = told(asked, replayTold({ status: { id: "IN_PROGRESS" }, operation: null }));
    expect(made).toBe(asked);
    const runs = told(
      asked,
      replayTold({ ...operation({ state: "RUNNING" }), status: { id: "IN_PROGRESS" } }),
    );
    expect([runs.step, runs.byJob, sayingOf(runs).newJob]).toEqual(["watch", "2", "2"]);
    expect(told(runs, replayTold({ ...operation({}), status: { id: "IN_PROGRESS" } }))).toBe(runs);
    expect(replaysOver([runs], "1")).toBe(0);
    const over = told(runs, replayTold(operation({})));
    expect([replaysOver([over], "1"), replaysOver([over], "2")]).toEqual([1, 0]);
    const other = begun({ id: "c", job: "1", action: "savepoint", startedMs: 1, wanted: {} });
    expect(replaysOver([{ ...other, step: "over" }], "1")).toBe(0);
  });

  test.each<[ReplayOperation, string, RegExp]>([
    [operation({}), "good", /^3 letters were replayed\.$/],
    [operation({ letters: 1 }), "good", /^1 letter was replayed\.$/],
    [operation({ failed_again: 1 }), "warn", /replayed; 1 failed again, and is a new letter in its table\.$/],
    [operation({ failed_again: 2 }), "warn", /2 failed again, and are new letters in their table\.$/],
    [operation({ unread: 4 }), "good", /^3 letters were replayed\. 4 more are still no rows\.$/],
    [operation({ letters: null, unread: null }), "good", /^An unknown number of letters was replayed\.$/],
    [operation({ goes_on: true }), "warn", /an earlier replay that had been cut off: ask again/],
    [
      operation({ state: "FAILED", failure: "no disk" }),
      "bad",
      /ended as FAILED: no disk\. Replay again to go on/,
    ],
    [operation({ job: null, state: null, letters: 0 }), "quiet", /nothing to replay. They were all replayed/],
    [
      operation({ job: null, state: null, letters: 0, unread: 2 }),
      "quiet",
      /nothing to replay. 2 are still no rows/,
    ],
  ])("%j", (answer, tone, sentence) => {
    const said = sayingOf(told(asked, replayTold(answer)));
    expect(said.tone).toBe(tone);
    expect(said.sentence).toMatch(sentence);
    expect(said.newJob).toBe(answer.operation?.job ?? null);
  });
});

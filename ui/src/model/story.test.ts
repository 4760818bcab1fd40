import { describe, expect, test } from "vitest";

import { type Story, type StoryLine, pictureOf, storyOf } from "./story";

const HEAD = { format: "unistream-story", version: 1, title: "t", reason: "", faults: "", lines: [] };

describe("a file", () => {
  test.each([
    ["", "no JSON"],
    ["[]", "no story"],
    ["null", "no story"],
    ['{"format": "other"}', "no story"],
    [JSON.stringify({ ...HEAD, version: 2 }), "version 2"],
    [JSON.stringify({ ...HEAD, lines: 7 }), "no lines"],
    [JSON.stringify({ ...HEAD, lines: [{ at_ms: 1, text: "a" }, { text: "b" }] }), "line 2 is none"],
    [JSON.stringify({ ...HEAD, lines: [null] }), "line 1 is none"],
  ])("%s is refused", (text, why) => {
    expect(storyOf(text)).toContain(why);
  });

  test("is read; what it does not say is empty", () => {
    const lines = [{ at_ms: 1.5, text: "<b>up</b>", source: "w1" }];
    expect(storyOf(JSON.stringify({ ...HEAD, lines, more: 1 }))).toEqual({
      title: "t",
      reason: "",
      faults: "",
      lines: [{ at_ms: 1.5, text: "<b>up</b>", source: "w1", target: "", lost: false }],
    });
  });
});

function line(text: string, source = "", target = "", lost = false): StoryLine {
  return { at_ms: 1, text, source, target, lost };
}

const STORY: Story = {
  title: "",
  reason: "",
  faults: "",
  lines: [
    line("w1 is up", "w1"),
    line("user: savepoint j", "user", "master-1"),
    line("Deploy a#0 -> sim://w1: Done", "master-1", "w1"),
    line("lost: Deploy a#1 to w2", "master-1", "w2", true),
    line("FAULT kill w1", "w1"),
    line("table: out commits checkpoint 3, 5 rows"),
  ],
};

describe("the picture", () => {
  test("has a lane for each process: user, masters, workers", () => {
    expect(pictureOf(STORY, { messages: true, text: "" }).lanes).toEqual(["user", "master-1", "w1", "w2"]);
  });

  test("says of each row what it is, from whom and to whom", () => {
    const { rows } = pictureOf(STORY, { messages: true, text: "" });
    expect(rows.map(({ kind, from, to, text }) => [kind, from, to, text])).toEqual([
      ["event", 2, null, "w1 is up"],
      ["event", 0, 1, "user: savepoint j"],
      ["message", 1, 2, "Deploy a#0: Done"],
      ["lost", 1, 3, "lost: Deploy a#1 to w2"],
      ["fault", 2, null, "FAULT kill w1"],
      ["event", null, null, "table: out commits checkpoint 3, 5 rows"],
    ]);
  });

  test.each([
    [{ messages: false, text: "" }, [0, 1, 3, 4, 5]],
    [{ messages: true, text: " W2 " }, [3]],
    [{ messages: true, text: "deploy" }, [2, 3]],
    [{ messages: false, text: "nothing" }, []],
  ])("%j leaves out the others, and lanes that nobody needs", (view, wanted) => {
    const { rows, lanes } = pictureOf(STORY, view);
    expect(rows.map(({ number }) => number)).toEqual(wanted);
    const used = new Set(rows.flatMap(({ from, to }) => [from, to]).filter((lane) => lane !== null));
    expect(used.size).toBe(lanes.length);
  });
});

import { describe, expect, test } from "vitest";

import type { Action } from "./actions";
import { type Operation, type Outcome, begun } from "./operations";
import { sayingOf, startCommand } from "./outcomes";

const ask = (action: Action, more: Partial<Operation> = {}): Operation => ({
  ...begun({ id: "ab", job: "1", action, startedMs: 1_000, wanted: {} }),
  ...more,
});

const ended = (action: Action, outcome: Outcome) => sayingOf(ask(action, { step: "over", outcome }));

describe("while it goes on", () => {
  test.each<[Action, Partial<Operation>, string, RegExp]>([
    ["stop", {}, "busy", /^What was submitted of the job is kept/],
    ["savepoint", {}, "busy", /^It is asked for\.$/],
    ["savepoint", { step: "watch" }, "busy", /being taken\. 3 of 8 subtasks$/],
    ["drain", { step: "watch" }, "busy", /sinks commit and the job ends/],
    [
      "rescale",
      { step: "watch", trouble: "Nobody is there." },
      "warn",
      /Nobody is there\. It is asked again\.$/,
    ],
    ["cancel", { step: "ask", trouble: "Away." }, "warn", /^It is asked for\. Away\. It is asked again\.$/],
  ])("%s %j", (action, more, tone, sentence) => {
    const said = sayingOf(ask(action, more), "3 of 8 subtasks");
    expect(said.tone).toBe(tone);
    expect(said.sentence).toMatch(sentence);
  });
});

describe("when it is over", () => {
  test.each<[Action, Outcome, string, RegExp, readonly string[]]>([
    ["savepoint", { is: "done", location: "/sp/1" }, "good", /complete, and the job goes on/, ["/sp/1"]],
    ["stop", { is: "done", location: "/sp/1" }, "good", /has ended/, ["/sp/1"]],
    [
      "drain",
      { is: "done", location: "/sp/2", resumable: "/sp/1" },
      "good",
      /windows have fired/,
      ["/sp/1", "/sp/2"],
    ],
    ["drain", { is: "done", location: "/sp/2" }, "good", /windows have fired/, ["/sp/2"]],
    ["cancel", { is: "done", state: "CANCELED" }, "quiet", /is cancelled/, []],
    ["cancel", { is: "done", state: "FINISHED" }, "warn", /had ended before, as FINISHED/, []],
    ["rescale", { is: "done", parallelism: { a: 4, b: 1, c: 4 } }, "good", /: 1 to 4 subtasks a vertex/, []],
    [
      "stop",
      { is: "refused", why: "the job is being stopped already" },
      "bad",
      /nothing has changed: the job is being stopped/,
      [],
    ],
    ["savepoint", { is: "failed", why: "the disk is full" }, "bad", /did not succeed: the disk is full/, []],
    [
      "rescale",
      { is: "unknown", why: "there is no rescale operation" },
      "warn",
      /does not know.*graph says how wide/,
      [],
    ],
    ["drain", { is: "unknown", why: "no" }, "warn", /list of checkpoints/, []],
  ])("%s %j", (action, outcome, tone, sentence, paths) => {
    const said = ended(action, outcome);
    expect(said.tone).toBe(tone);
    expect(said.sentence).toMatch(sentence);
    expect(said.places.map(({ path }) => path)).toEqual(paths);
    expect(said.command).toBe(paths[0] === undefined ? null : startCommand(paths[0]));
  });

  test("a start leads to the new job", () => {
    expect(ended("start", { is: "done", newJob: "77" }).newJob).toBe("77");
  });
});

test.each([
  ["/sp/savepoint-1", "unistream run MODULE:FUNCTION -s /sp/savepoint-1"],
  ["s3://b/a=1/x", "unistream run MODULE:FUNCTION -s s3://b/a=1/x"],
  ["/my dir/$(rm)", "unistream run MODULE:FUNCTION -s '/my dir/$(rm)'"],
  ["/it's", "unistream run MODULE:FUNCTION -s '/it'\\''s'"],
])("the command for %s", (path, command) => {
  expect(startCommand(path)).toBe(command);
});

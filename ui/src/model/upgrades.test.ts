import { describe, expect, test } from "vitest";

import { type Operation, type Told, begun, parsed, told } from "./operations";
import { sayingOf, startCommand } from "./outcomes";
import { RESTARTS_MAX, optionsOf, proofOf, requestIdOf, stepsOf } from "./upgrades";

const asked = begun({
  id: "ab",
  job: "1",
  action: "upgrade",
  startedMs: 1_000,
  wanted: { config: { a: "b" } },
});
const ok: Told = { is: "accepted" };
const running: Told = { is: "running" };
const saved: Told = { is: "done", location: "/sp" };
const started = (newJob: string): Told => ({ is: "done", newJob });
const come: Told = { is: "done" };
const away: Told = { is: "away", why: "nobody answers" };
const no = (status: number): Told => ({ is: "refused", status, why: `it is ${status}.` });
const failed: Told = { is: "failed", why: "boom." };

const STOPPED = [ok, ok, ok, running, saved];
const after = (...answers: readonly Told[]) => answers.reduce(told, asked);

describe("an upgrade, answer by answer", () => {
  test.each<[string, readonly Told[], Partial<Operation>, string]>([
    ["what was submitted is kept first", [], { step: "keep" }, "now waits waits waits waits"],
    ["then the changes are checked", [ok], { step: "check", kept: true }, "done now waits waits waits"],
    [
      "what cannot be kept is not stopped",
      [no(404)],
      { outcome: { is: "refused", why: "it is 404." } },
      "failed waits waits waits waits",
    ],
    [
      "a change that cannot be: nothing has happened",
      [ok, no(400)],
      { outcome: { is: "refused", why: "it is 400." } },
      "done failed waits waits waits",
    ],
    ["it is stopped", [ok, ok, ok, running], { step: "watch" }, "done done now waits waits"],
    [
      "the stop fails, and the job goes on",
      [ok, ok, ok, no(500)],
      { outcome: { is: "failed", why: "it is 500." } },
      "done done failed waits waits",
    ],
    [
      "nobody knows the stop",
      [ok, ok, ok, no(404)],
      { outcome: { is: "unknown", why: "it is 404." } },
      "done done failed waits waits",
    ],
    ["it has stopped", STOPPED, { step: "start", made: { savepoint: "/sp" } }, "done done done now waits"],
    [
      "the new job runs",
      [...STOPPED, started("2"), running],
      { step: "prove", made: { savepoint: "/sp", newJob: "2" } },
      "done done done done now",
    ],
    [
      "it has a checkpoint",
      [...STOPPED, started("2"), come],
      { step: "over", outcome: { is: "done", newJob: "2" } },
      "done done done done done",
    ],
    [
      "the new job is refused",
      [...STOPPED, no(400)],
      { step: "back", made: { savepoint: "/sp", why: "it is 400." } },
      "done done done failed waits now",
    ],
    [
      "it fails, and the old one is there again",
      [...STOPPED, started("2"), failed, started("3")],
      { outcome: { is: "went back", why: "boom.", newJob: "3" } },
      "done done done done failed done",
    ],
    [
      "and that is refused, too",
      [...STOPPED, started("2"), failed, no(400)],
      {
        outcome: {
          is: "failed",
          why: "boom. And the job as it was does not start again: it is 400.",
          location: "/sp",
        },
      },
      "done done done done failed failed",
    ],
    [
      "the leader changes in the middle",
      [...STOPPED, no(503), away],
      { step: "start", trouble: "nobody answers" },
      "done done done now waits",
    ],
    [
      "and goes on",
      [...STOPPED, away, started("2")],
      { step: "prove", trouble: null },
      "done done done done now",
    ],
  ])("%s", (_, answers, expected, steps) => {
    const found = after(...answers);
    expect(found).toMatchObject(expected);
    expect(
      stepsOf(found)
        .map(({ state }) => state)
        .join(" "),
    ).toBe(steps);
    expect(parsed(JSON.stringify([found])), "a reload goes on there").toEqual([found]);
  });

  test("a second tab that is told the same does the same", () => {
    const [first, second] = [after(...STOPPED, started("2")), after(...STOPPED, started("2"))];
    expect(first).toEqual(second);
    expect([requestIdOf("ab", "start"), requestIdOf("ab", "back")]).toEqual([
      "upgrade ab",
      "upgrade ab back",
    ]);
  });
});

test("what is said when nothing runs any more has the command that goes on", () => {
  const said = sayingOf(after(...STOPPED, no(400), no(400)));
  expect([said.tone, said.command]).toEqual(["bad", startCommand("/sp")]);
  const back = sayingOf(after(...STOPPED, { is: "refused", status: 400, why: "no slots" }, started("3")));
  expect([back.newJob, back.sentence]).toEqual(["3", expect.stringContaining("no slots. The job as it was")]);
});

type Looked = Parameters<typeof proofOf>[0];

test.each<[string, Partial<Looked>, unknown]>([
  ["it starts", { state: "INITIALIZING" }, { is: "waits" }],
  ["all tasks run", { state: "RUNNING" }, { is: "may take a checkpoint" }],
  ["it has one", { checkpoints_completed: 1 }, { is: "proven" }],
  ["it had a bounded source", { state: "FINISHED" }, { is: "proven" }],
  ["it restarts", { state: "RESTARTING", restarts: RESTARTS_MAX - 1 }, { is: "waits" }],
  ["it keeps restarting", { state: "RESTARTING", restarts: RESTARTS_MAX }, { is: "has to end" }],
  [
    "it has failed",
    { state: "FAILED", failure: { message: "boom" } as never },
    { is: "failed", why: "boom" },
  ],
  [
    "it was ended because of that",
    { state: "CANCELED", exceptions: [{ message: "boom" }] as never },
    { is: "failed", why: "boom" },
  ],
  ["somebody has ended it", { state: "CANCELED" }, { is: "failed", why: "It has ended as CANCELED." }],
])("whether the new job comes up: %s", (_, more, expected) => {
  const job = {
    state: "RUNNING",
    subtasks: [],
    checkpoints_completed: 0,
    restarts: 0,
    failure: null,
    exceptions: [],
  };
  expect(proofOf({ ...job, ...more } as Looked)).toEqual(expected);
});

test.each([
  ["", { config: {} }],
  ["# nothing\n\n", { config: {} }],
  ["a.b-c: 30 s\n x=y z ", { config: { "a.b-c": "30 s", x: "y z" } }],
  ["a=b=c\nurl: http://h:1", { config: { a: "b=c", url: "http://h:1" } }],
  ["a: 1\na: 2", { config: { a: "2" } }],
  ["a", { wrong: "a" }],
  ["a:", { wrong: "a:" }],
  ["two words: 1", { wrong: "two words: 1" }],
])("options %j", (text, expected) => {
  expect(optionsOf(text)).toEqual(expected);
});

import { describe, expect, test } from "vitest";

import type { Action } from "./actions";
import { KEPT_MAX, KEPT_MS, type Operation, type Told, begun, kept, parsed, told } from "./operations";

const ask = (action: Action, more: Partial<Operation> = {}): Operation => ({
  ...begun({ id: "ab", job: "1", action, startedMs: 1_000, wanted: {} }),
  ...more,
});

const accepted: Told = { is: "accepted" };
const running: Told = { is: "running" };
const done: Told = { is: "done", location: "/sp" };
const away: Told = { is: "away", why: "nobody answers" };
const no = (status: number): Told => ({ is: "refused", status, why: `it is ${status}` });

describe("an operation, answer by answer", () => {
  test.each<[string, Action, Told[], Partial<Operation>]>([
    [
      "a savepoint",
      "savepoint",
      [accepted, running, done],
      { step: "over", outcome: { is: "done", location: "/sp" } },
    ],
    ["a stop keeps the job first", "stop", [accepted], { step: "ask", kept: true }],
    ["what cannot be kept is stopped all the same", "stop", [no(404)], { step: "ask", kept: false }],
    ["a stop", "stop", [accepted, accepted, done], { step: "over", kept: true }],
    [
      "a start is answered at once",
      "start",
      [{ is: "done", newJob: "2" }],
      { outcome: { is: "done", newJob: "2" } },
    ],
    ["a refusal", "rescale", [no(400)], { step: "over", outcome: { is: "refused", why: "it is 400" } }],
    ["it cannot be done now", "rescale", [no(409)], { outcome: { is: "refused", why: "it is 409" } }],
    ["a page that may not", "cancel", [accepted, no(403)], { outcome: { is: "refused", why: "it is 403" } }],
    ["it fails", "savepoint", [accepted, no(500)], { outcome: { is: "failed", why: "it is 500" } }],
    [
      "a leader that does not know it",
      "rescale",
      [accepted, no(404)],
      { outcome: { is: "unknown", why: "it is 404" } },
    ],
    ["nobody answers: it is asked again", "savepoint", [away], { step: "ask", trouble: "nobody answers" }],
    [
      "the leader changes",
      "stop",
      [accepted, accepted, no(503), away],
      { step: "watch", trouble: "nobody answers" },
    ],
    ["a login has ended", "stop", [no(401)], { step: "keep", trouble: "it is 401" }],
    [
      "a proxy does not let it pass any more",
      "savepoint",
      [accepted, no(403)],
      { step: "watch", outcome: null, trouble: "it is 403" },
    ],
    ["somebody answers again", "stop", [accepted, accepted, away, running], { step: "watch", trouble: null }],
    [
      "what is over stays so",
      "savepoint",
      [accepted, done, no(404), away],
      { outcome: { is: "done", location: "/sp" }, trouble: null },
    ],
  ])("%s", (_, action, answers, expected) => {
    expect(answers.reduce(told, ask(action))).toMatchObject(expected);
  });

  test.each<[Action, string]>([
    ["savepoint", "ask"],
    ["rescale", "ask"],
    ["start", "ask"],
    ["stop", "keep"],
    ["drain", "keep"],
    ["cancel", "keep"],
    ["upgrade", "keep"],
  ])("%s begins with %s", (action, step) => {
    expect(ask(action).step).toBe(step);
  });
});

describe("what a browser has stored", () => {
  test("comes back as it was", () => {
    const all = [ask("stop"), told(ask("savepoint"), no(400))];
    expect(parsed(JSON.stringify(all))).toEqual(all);
  });

  test.each([null, "", "{", "3", "null", '{"id":"a"}', '[null, 3, {"id":"a"}]'])("%j is nothing", (text) => {
    expect(parsed(text)).toEqual([]);
  });

  test.each([{ step: "later" }, { step: "over" }, { wanted: null }, { id: 3 }])(
    "%j is of another version",
    (odd) => {
      expect(parsed(JSON.stringify([{ ...ask("stop"), ...odd }]))).toEqual([]);
    },
  );

  test("is at most a day old, and not too much", () => {
    const all = Array.from({ length: KEPT_MAX + 5 }, (_, index) => ask("savepoint", { startedMs: index }));
    expect(kept(all, 10).map(({ startedMs }) => startedMs)).toEqual(
      Array.from({ length: KEPT_MAX }, (_, index) => KEPT_MAX + 4 - index),
    );
    expect(kept(all, KEPT_MS + 24)).toEqual([]);
  });
});

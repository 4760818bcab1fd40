import { describe, expect, test } from "vitest";

import type { CheckpointConfig, CheckpointInfo } from "../api/schema";
import {
  type Action,
  type Subject,
  actionsOf,
  consequencesOf,
  hindranceOf,
  pointsOf,
  waitsFor,
} from "./actions";

type Job = Subject["job"];

function snapshot(
  id: number,
  kind: CheckpointInfo["kind"],
  more: Partial<CheckpointInfo> = {},
): CheckpointInfo {
  return {
    checkpoint_id: id,
    kind,
    state: "completed",
    triggered_ms: id * 1_000,
    duration_ms: 5,
    state_bytes: 0,
    path: `/sp/${kind}-${id}`,
    reason: null,
    ...more,
  };
}

const subtask = (state: Job["subtasks"][number]["state"]) => ({ state }) as Job["subtasks"][number];

const RUNNING: Job = {
  state: "RUNNING",
  job_type: "STREAMING",
  subtasks: [subtask("RUNNING"), subtask("FINISHED")],
  sinks: {},
  writes: {},
  checkpoints: [],
  savepoint: null,
  resumes_from: null,
  latest_checkpoint: null,
};

function subject(job: Partial<Job> = {}, more: Partial<Subject> = {}): Subject {
  return {
    job: { ...RUNNING, ...job },
    checkpoints: null,
    kept: false,
    underWay: [],
    nowMs: 10_000,
    ...more,
  };
}

function retention(enabled: boolean, delete_on_cancellation: boolean): CheckpointConfig {
  return { externalization: { enabled, delete_on_cancellation } } as CheckpointConfig;
}

describe("which actions a job has", () => {
  test.each<[string, Partial<Job>, boolean, Action[]]>([
    ["a stream", {}, false, ["savepoint", "rescale", "upgrade", "stop", "drain", "cancel"]],
    [
      "a stream that restarts",
      { state: "RESTARTING" },
      false,
      ["savepoint", "rescale", "upgrade", "stop", "drain", "cancel"],
    ],
    ["a batch job takes no snapshots", { job_type: "BATCH" }, false, ["cancel"]],
    ["one that has ended, and is kept", { state: "FINISHED" }, true, ["start"]],
    ["one that has ended", { state: "FAILED" }, false, []],
    ["one that runs, and is kept", { job_type: "BATCH" }, true, ["cancel"]],
  ])("%s", (_, job, kept, actions) => {
    expect(actionsOf(subject(job, { kept }))).toEqual(actions);
  });
});

describe("what is in the way", () => {
  const point = { checkpoints: [snapshot(3, "suspend")] };
  test.each<[Action, Partial<Job>, Partial<Subject>, RegExp | null]>([
    ["savepoint", {}, {}, null],
    ["savepoint", {}, { underWay: ["savepoint"] }, null],
    ["savepoint", {}, { underWay: ["drain"] }, /being stopped already/],
    [
      "savepoint",
      { state: "RESTARTING", subtasks: [subtask("CREATED")] },
      {},
      /RESTARTING, and 0 of its 1 tasks/,
    ],
    ["stop", { subtasks: [subtask("RUNNING"), subtask("DEPLOYING")] }, {}, /1 of its 2 tasks run/],
    ["drain", {}, { underWay: ["stop"] }, /being stopped already/],
    ["rescale", {}, { underWay: ["rescale"] }, /being rescaled already/],
    ["stop", {}, { underWay: ["rescale"] }, null],
    ["cancel", { state: "RESTARTING", subtasks: [] }, { underWay: ["stop"] }, null],
    ["cancel", { state: "CANCELLING" }, {}, /being cancelled/],
    ["cancel", { state: "FAILING" }, {}, /failing/],
    ["cancel", { state: "FINISHED" }, {}, /has ended as FINISHED/],
    ["rescale", { state: "CANCELED" }, {}, /has ended as CANCELED/],
    ["upgrade", {}, { underWay: ["stop"] }, /being stopped already/],
    ["stop", {}, { underWay: ["upgrade"] }, /being upgraded/],
    ["cancel", {}, { underWay: ["upgrade"] }, null],
    ["start", { state: "FINISHED", ...point }, { kept: true }, null],
    ["start", { state: "FINISHED" }, { kept: true }, /No savepoint/],
    ["start", { state: "FINISHED", ...point }, { underWay: ["start"] }, /being started already/],
  ])("%s of %j with %j", (action, job, more, why) => {
    const said = hindranceOf(action, subject(job, more));
    if (why === null) expect(said).toBeNull();
    else expect(said).toMatch(why);
  });
});

test.each<[Partial<Job>, RegExp | null]>([
  [{}, null],
  [{ state: "FINISHED", subtasks: [] }, null],
  [{ state: "FAILED", subtasks: [subtask("FAILED")] }, null],
  [{ state: "INITIALIZING", subtasks: [] }, /INITIALIZING, and 0 of its 0 tasks run\.$/],
  [{ subtasks: [subtask("RUNNING"), subtask("SCHEDULED")] }, /1 of its 2 tasks run\.$/],
])("what is waited for: %j", (job, why) => {
  const said = waitsFor(subject(job).job);
  if (why === null) expect(said).toBeNull();
  else expect(said).toMatch(why);
});

describe("what will happen", () => {
  const sinks = { writes: { out: ["delta:/t"] } };
  test.each<[Action, Partial<Job>, Partial<Subject>, RegExp]>([
    ["stop", sinks, {}, /become visible in the sinks/],
    ["stop", {}, {}, /reach the sinks/],
    ["drain", sinks, {}, /windows fire/],
    ["cancel", {}, {}, /on their way are dropped/],
    ["cancel", sinks, {}, /No checkpoint is complete/],
    [
      "cancel",
      { ...sinks, checkpoints: [snapshot(7, "checkpoint")] },
      {},
      /last checkpoint \(3 s ago\) do not/,
    ],
    [
      "cancel",
      { ...sinks, checkpoints: [snapshot(7, "checkpoint")] },
      { nowMs: null },
      /last checkpoint do not/,
    ],
    ["cancel", { ...sinks, job_type: "BATCH" }, {}, /unless the job has begun to commit/],
  ])("to rows: %s of %j", (action, job, more, sentence) => {
    expect(consequencesOf(action, subject(job, more)).rows).toMatch(sentence);
  });

  test.each<[Partial<Job>, CheckpointConfig | null, RegExp]>([
    [{}, null, /unless the retention says otherwise. There is no savepoint/],
    [{}, retention(false, true), /deleted with it. There is no savepoint to go on from: stop/],
    [
      { checkpoints: [snapshot(1, "savepoint")] },
      retention(true, true),
      /deleted with it. The savepoints stay/,
    ],
    [{}, retention(true, false), /newest checkpoint stays/],
    [{ job_type: "BATCH" }, retention(true, false), /begins at the beginning/],
  ])("to the state of a cancelled job: %j %j", (job, checkpoints, sentence) => {
    expect(consequencesOf("cancel", subject(job, { checkpoints })).state).toMatch(sentence);
  });

  test.each<[Action, boolean]>([
    ["savepoint", false],
    ["rescale", false],
    ["start", false],
    ["upgrade", true],
    ["stop", true],
    ["drain", true],
    ["cancel", true],
  ])("%s says whether the job ends", (action, isEnd) => {
    expect(consequencesOf(action, subject()).isEnd).toBe(isEnd);
  });
});

describe("what a job can start from", () => {
  const paths = (job: Partial<Job>, checkpoints: CheckpointConfig | null = null) =>
    pointsOf(subject(job, { checkpoints })).map(({ path, isOlder }) => [path, isOlder]);

  test("savepoints, the newest first; what was committed after them is said", () => {
    const all = [
      snapshot(5, "suspend"),
      snapshot(4, "checkpoint"),
      snapshot(2, "savepoint"),
      snapshot(1, "savepoint", { state: "failed", path: null }),
    ];
    expect(paths({ state: "FINISHED", checkpoints: all })).toEqual([
      ["/sp/suspend-5", false],
      ["/sp/savepoint-2", true],
    ]);
  });

  test("after a drain the one before the end of data", () => {
    const all = [snapshot(9, "terminate"), snapshot(8, "savepoint"), snapshot(3, "savepoint")];
    expect(paths({ state: "FINISHED", checkpoints: all })).toEqual([
      ["/sp/savepoint-8", false],
      ["/sp/savepoint-3", true],
    ]);
  });

  test("of a job whose history is gone what it resumes from", () => {
    expect(paths({ state: "FINISHED", resumes_from: "/sp/half" })).toEqual([["/sp/half", false]]);
  });

  const last = { checkpoints: [snapshot(4, "checkpoint")], latest_checkpoint: "/sp/checkpoint-4" };
  test.each<[Job["state"], CheckpointConfig | null, number]>([
    ["FAILED", retention(true, true), 1],
    ["FAILED", retention(false, true), 0],
    ["CANCELED", retention(true, false), 1],
    ["CANCELED", retention(true, true), 0],
    ["FINISHED", retention(true, false), 0],
    ["SUSPENDED", null, 1],
    ["FAILED", null, 0],
  ])("the last checkpoint of one that is %s with %j", (state, checkpoints, number) => {
    expect(paths({ state, ...last }, checkpoints)).toHaveLength(number);
  });
});

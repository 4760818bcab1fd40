import { describe, expect, test } from "vitest";

import type { CheckpointInfo, ExceptionInfo, JobInfo, SilentSource, SubtaskInfo } from "../api/schema";
import { RECENT_MS, troublesOf } from "./trouble";

const FAILED_MS = 1_000_000;
const NOW_MS = FAILED_MS + 5_000;
const VERTEX = "f".repeat(32);

const FAILURE: ExceptionInfo = {
  at_ms: FAILED_MS,
  kind: "UserCodeError",
  message: "function 'fare' raised ValueError at row 1 of the batch: {'n': 3}",
  traceback: "",
  attempt: `job/${VERTEX}#0.0`,
  task_manager: "tm-1",
  task_name: "fare (1/2) - execution #0",
  endpoint: null,
  concurrent: [],
};

const SILENT: SilentSource = { name: "rides", seconds: 25, subtasks: 2, of: 2 };

function checkpoint(id: number, state: CheckpointInfo["state"], triggeredMs: number): CheckpointInfo {
  const reason = state === "failed" ? "it took longer than execution.checkpointing.timeout" : null;
  return {
    ...{ checkpoint_id: id, kind: "checkpoint", state, triggered_ms: triggeredMs, reason },
    ...{ duration_ms: 1, state_bytes: 0, path: null },
  };
}

const BEFORE = checkpoint(2, "completed", FAILED_MS - 1_000);
const AFTER = checkpoint(3, "completed", FAILED_MS + 1_000);

function job(changes: Partial<JobInfo>): JobInfo {
  const info: Partial<JobInfo> = {
    job: "job",
    state: "RUNNING",
    checkpoints: [BEFORE],
    exceptions: [],
    reads: {},
    subtasks: [{ vertex: VERTEX, source: "rides" } as SubtaskInfo],
    ...changes,
  };
  return info as JobInfo;
}

const ROOT = { exceptions: [FAILURE] };

describe("what is wrong with a job", () => {
  test.each<
    [string, Partial<JobInfo>, readonly SilentSource[], [tone: string, page: string | null, RegExp][]]
  >([
    ["nothing", {}, [], []],
    ["a failure of a job that has ended well is over", { ...ROOT, state: "FINISHED" }, [], []],
    [
      "it waits for its restart",
      { ...ROOT, state: "RESTARTING" },
      [],
      [["bad", "exceptions", /by itself, from checkpoint 2\..*dead letters/]],
    ],
    [
      "before its first checkpoint",
      { ...ROOT, state: "RESTARTING", checkpoints: [] },
      [],
      [["bad", "exceptions", /from its beginning/]],
    ],
    [
      "it runs, and it is not known whether for long",
      ROOT,
      [],
      [["warn", "exceptions", /has not completed a checkpoint since/]],
    ],
    [
      "it has recovered",
      { ...ROOT, checkpoints: [AFTER, BEFORE] },
      [],
      [["quiet", "exceptions", /^The job has started again since, and has completed checkpoints\.$/]],
    ],
    [
      "it does not start again",
      { ...ROOT, state: "FAILED" },
      [],
      [["bad", "exceptions", /does not start again by itself\. Mend what is named/]],
    ],
    [
      "a lost worker needs nobody",
      { exceptions: [{ ...FAILURE, kind: "TaskManagerLost" }], state: "RESTARTING" },
      [],
      [["bad", "exceptions", /There is nothing to do/]],
    ],
    [
      "a checkpoint that failed the job leads to its page",
      { exceptions: [{ ...FAILURE, kind: "CHECKPOINT_EXPIRED" }], state: "RESTARTING" },
      [],
      [["bad", "checkpoints", /which subtask was slow/]],
    ],
    ...(
      [
        ["CHECKPOINT_ASYNC_EXCEPTION", "[Errno 28] No space left on device", /is full: make room there/],
        ["CHECKPOINT_ASYNC_EXCEPTION", "writing state: Access denied", /could not be stored: look at/],
        ["FINALIZE_CHECKPOINT_FAILURE", "cannot write file:///c/_metadata", /could not be stored: look at/],
        ["CHECKPOINT_DECLINED", "a task was not ready", /has the reasons of the last ones/],
      ] as const
    ).map(([kind, message, then]): [string, Partial<JobInfo>, [], [string, string, RegExp][]] => [
      `${kind}: ${message}`,
      { exceptions: [{ ...FAILURE, kind, message }], state: "RESTARTING" },
      [],
      [["bad", "checkpoints", then]],
    ]),
    [
      "a full disk is no slow subtask, also of a checkpoint that is tolerated",
      {
        checkpoints: [
          { ...checkpoint(4, "failed", 4), reason: "[Errno 28] No space left on device" },
          BEFORE,
        ],
      },
      [],
      [["warn", "checkpoints", /not visible yet\. The place where checkpoints are stored is full/]],
    ],
    [
      "checkpoints fail while it runs",
      { checkpoints: [checkpoint(4, "failed", 4), checkpoint(3, "failed", 3), BEFORE] },
      [],
      [["warn", "checkpoints", /not visible yet/]],
    ],
    [
      "a checkpoint that a restart gave up is no trouble of its own",
      { ...ROOT, checkpoints: [checkpoint(3, "failed", FAILED_MS - 1), BEFORE] },
      [],
      [["warn", "exceptions", /runs again/]],
    ],
    ["a system that does not answer", {}, [SILENT], [["warn", null, /goes on by itself/]]],
    [
      "the worst first",
      { ...ROOT, checkpoints: [AFTER] },
      [SILENT],
      [
        ["warn", null, /goes on by itself/],
        ["quiet", "exceptions", /started again/],
      ],
    ],
  ])("%s", (_, changes, silent, wanted) => {
    const found = troublesOf(job(changes), silent, NOW_MS);
    expect(found.map(({ tone, page }) => [tone, page])).toEqual(wanted.map(([tone, page]) => [tone, page]));
    for (const [index, [, , then]] of wanted.entries()) expect(found[index]?.then).toMatch(then);
  });

  test("cause and place of a failure", () => {
    expect(troublesOf(job({ ...ROOT, state: "RESTARTING" }), [], NOW_MS)).toMatchObject([
      {
        what: "UserCodeError: function 'fare' raised ValueError at row 1 of the batch: {'n': 3}",
        task: "fare (1/2) - execution #0",
        vertex: VERTEX,
        atMs: FAILED_MS,
      },
    ]);
  });

  test("the end of a job names what had failed before it", () => {
    const end = { ...FAILURE, kind: "JobFailed", message: "not recoverable", attempt: null, task_name: null };
    const info = job({ exceptions: [{ ...end, concurrent: [FAILURE] }], state: "FAILED" });
    expect(troublesOf(info, [], NOW_MS)).toMatchObject([
      { vertex: VERTEX, what: expect.stringMatching(/^UserCodeError/) as string },
    ]);
    const alone = job({ exceptions: [end], state: "FAILED" });
    expect(troublesOf(alone, [], NOW_MS)).toMatchObject([
      { vertex: null, what: "JobFailed: not recoverable" },
    ]);
  });

  test("a source names what the job reads", () => {
    const reads = { rides: ["kafka://b:9092/rides"] };
    expect(troublesOf(job({ reads }), [SILENT], NOW_MS)).toMatchObject([
      {
        what: "Source rides has had no answer for 25 s (2 of 2 subtasks). The job reads kafka://b:9092/rides.",
        vertex: VERTEX,
      },
    ]);
  });

  test.each([
    ["recent", RECENT_MS, 1],
    ["long ago", RECENT_MS + 1, 0],
  ])("what a job has recovered from is shown while it is %s", (_, agoMs, number) => {
    const info = job({ ...ROOT, checkpoints: [AFTER] });
    expect(troublesOf(info, [], FAILED_MS + agoMs)).toHaveLength(number);
  });
});

import { describe, expect, test } from "vitest";

import { type LiveEvent, type Pictures, type Whole, taken } from "./pictures";

const JOB = "a".repeat(32);

/** Pictures have what a change looks at; all other fields are passed on. */
function whole(topic: string, version: number, fields: object): LiveEvent {
  const event = topic.split("/", 1)[0] ?? "";
  return { event, topic, version, at_ms: version * 100, whole: fields } as unknown as LiveEvent;
}

function change(topic: string, base: number, version: number, more: object): LiveEvent {
  const changes = { fields: {}, rows: [], order: null, ...more };
  return { event: "change", topic, base, version, at_ms: version * 100, ...changes } as unknown as LiveEvent;
}

const subtask = (vertex: string, index: number, attempt = 0) => ({ vertex, index, attempt });
const job = (id: string, restarts = 0) => ({ summary: { job: id, restarts }, figures: null });
const snapshot = (id: number, status = "completed") => ({ checkpoint_id: id, status });

function all(...events: readonly LiveEvent[]): { pictures: Pictures; outcomes: string[] } {
  let pictures: Pictures = new Map();
  const outcomes: string[] = [];
  for (const event of events) {
    const result = taken(pictures, event);
    pictures = result.pictures;
    outcomes.push(result.outcome);
  }
  return { pictures, outcomes };
}

describe("a change", () => {
  const jobs = { now_ms: 1, notes: ["x"], jobs: [job("a"), job("b")] };
  const tasks = { name: "n", ended_ms: 5, subtasks: [subtask("v", 0), subtask("v", 1)] };
  const latest = { completed: 1, latest: [snapshot(1)] };
  test.each<[string, string, object, object, object]>([
    ["of a field", "overview", jobs, { fields: { now_ms: 2 } }, { ...jobs, now_ms: 2 }],
    [
      "to null, which nobody knows",
      `job/${JOB}`,
      tasks,
      { fields: { ended_ms: null } },
      { ...tasks, ended_ms: null },
    ],
    ["of a job", "overview", jobs, { rows: [job("b", 1)] }, { ...jobs, jobs: [job("a"), job("b", 1)] }],
    [
      "a new job",
      "overview",
      jobs,
      { rows: [job("c")], order: ["c", "a", "b"] },
      { ...jobs, jobs: [job("c"), job("a"), job("b")] },
    ],
    ["a job is gone", "overview", jobs, { order: ["b"] }, { ...jobs, jobs: [job("b")] }],
    ["no job is left", "overview", jobs, { order: [] }, { ...jobs, jobs: [] }],
    [
      "of a subtask",
      `job/${JOB}`,
      tasks,
      { rows: [subtask("v", 1, 3)] },
      { ...tasks, subtasks: [subtask("v", 0), subtask("v", 1, 3)] },
    ],
    [
      "of a snapshot",
      `checkpoints/${JOB}`,
      latest,
      { rows: [snapshot(2)], order: ["2", "1"] },
      { ...latest, latest: [snapshot(2), snapshot(1)] },
    ],
  ])("%s", (_, topic, before, changes, wanted) => {
    const { pictures, outcomes } = all(whole(topic, 1, before), change(topic, 1, 2, changes));
    expect(outcomes).toEqual(["changed", "changed"]);
    expect(pictures.get(topic)).toEqual({ version: 2, atMs: 200, whole: wanted });
  });

  test.each<[string, LiveEvent[], string]>([
    ["of what is here", [change("overview", 5, 6, {})], "changed"],
    ["that came already", [change("overview", 3, 5, {})], "same"],
    ["of something newer", [change("overview", 6, 7, {})], "lost"],
    ["of another topic that is not here", [change(`job/${JOB}`, 5, 6, {})], "lost"],
    ["to a row that is not here", [change("overview", 5, 6, { order: ["z"] })], "lost"],
    [
      "of what is gone",
      [
        { event: "refused", topic: "overview", version: 6, at_ms: 1, status: 404, errors: [] },
        change("overview", 5, 7, {}),
      ],
      "lost",
    ],
    ["of a newer whole", [whole("overview", 2, { jobs: [] }), change("overview", 2, 3, {})], "changed"],
  ])("%s", (_, events, outcome) => {
    expect(all(whole("overview", 5, jobs), ...events).outcomes.at(-1)).toBe(outcome);
  });

  test("what is not changed is the same object, so that nothing of it is drawn again", () => {
    const { pictures } = all(whole("overview", 1, jobs), change("overview", 1, 2, { rows: [job("b", 1)] }));
    const now = pictures.get("overview")?.whole as unknown as { jobs: unknown[] } & Whole;
    expect(now.jobs[0]).toBe(jobs.jobs[0]);
  });
});

import { describe, expect, test } from "vitest";

import type { TaskManagerInfo, WorkerShown, WorkersInfo } from "../api/schema";
import { layersOf, matching, stateOf, tasksInWords, totalsOf } from "./workers";

const WORKER: TaskManagerInfo = {
  id: "tm-1",
  slots: 2,
  address: "grpc://a:1",
  pid: 1,
  host: "a",
  heartbeat_ms: 1_000,
  free_slots: 1,
  profile: { cpu_cores: 0, memory_mb: 0 },
  memory: { process: 100, flink: 80, framework: 10, task: 30, network: 20, managed: 20, overhead: 20 },
  memory_used: { process: 50, network: 0 },
  hardware: { cpu_cores: 4, memory_bytes: 1_000 },
  started_ms: 1,
  registered_ms: 2,
  blocked_ms: 0,
  jobs: [],
  draining: false,
};

const TASK = { vertex: "v", vertex_name: "sink", index: 0, attempt: 0, state: "RUNNING" } as const;

function shown(changes: Partial<TaskManagerInfo> = {}, tasks = [TASK]): WorkerShown {
  const slots = [{ allocation: "s", job: "j1", job_name: "orders", tasks }];
  return { worker: { ...WORKER, ...changes }, slots, has_log: false };
}

function info(...workers: WorkerShown[]): WorkersInfo {
  return { now_ms: 1_000, workers, blocked: [] };
}

describe("layers of memory", () => {
  test("as the plan divides it, with what is known to be used", () => {
    expect(layersOf(WORKER).map(({ name, depth, planned, part }) => [name, depth, planned, part])).toEqual([
      ["process", 0, 100, 0.5],
      ["flink", 1, 80, null],
      ["framework", 2, 10, null],
      ["task", 2, 30, null],
      ["network", 2, 20, 0],
      ["managed", 2, 20, null],
      ["overhead", 1, 20, null],
    ]);
  });

  test.each([
    ["none before it has registered", {}, []],
    ["a part without any memory has no share", { managed: 0 }, [null]],
  ])("%s", (_, memory, parts) => {
    const worker = { ...WORKER, memory, memory_used: { managed: 0 } };
    expect(layersOf(worker).map(({ part }) => part)).toEqual(parts);
  });
});

describe("totals", () => {
  test.each([
    ["no worker", [], { registered: 0, slots: 0, cores: null, memoryBytes: null, hosts: 0 }],
    ["workers of a host share it", [shown(), shown()], { slots: 4, free: 2, cores: 4, memoryBytes: 1_000 }],
    ["two hosts", [shown(), shown({ host: "b" })], { cores: 8, hosts: 2 }],
    ["one that does not say it", [shown(), shown({ host: "b", hardware: null })], { cores: null }],
    ["one that starts", [shown(), shown({ address: null })], { registered: 1, starting: 1, slots: 2 }],
  ])("%s", (_, workers, wanted) => {
    expect(totalsOf(info(...workers))).toMatchObject(wanted);
  });
});

test.each([
  ["", 2],
  ["ORDERS", 1],
  ["tm-1", 2],
  ["sink", 1],
  ["host-b", 1],
  ["nothing", 0],
])("a search for %j", (text, count) => {
  expect(matching([shown(), { ...shown({ host: "host-b" }), slots: [] }], text)).toHaveLength(count);
});

test.each([
  ["starting", { address: null }],
  ["silent", { heartbeat_ms: -30_000 }],
  ["blocked", { blocked_ms: 5 }],
  ["draining", { blocked_ms: 5, draining: true }],
  ["busy", {}],
])("%s", (state, changes) => {
  expect(stateOf(shown(changes), 1_000)).toBe(state);
});

test("without a slot that is taken it is idle", () => {
  expect(stateOf({ ...shown(), slots: [] }, 1_000)).toBe("idle");
});

test("tasks in words", () => {
  expect(tasksInWords([TASK, { ...TASK, vertex_name: "map", index: 4, state: "FAILED" }])).toBe(
    "sink (1), map (5) failed",
  );
});

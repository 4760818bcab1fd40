import type { TaskManagerInfo, TaskInSlot, WorkerShown, WorkersInfo } from "../api/schema";

/** A part of a worker's memory plan: what it may have and has; `part` of it, 0 to 1 and more. */
export interface Layer {
  readonly name: string;
  readonly depth: number;
  readonly planned: number;
  readonly used: number | null;
  readonly part: number | null;
}

/** The plan as it is divided, the whole first: name and how deep it is in the others. */
const PLAN = [
  ["process", 0],
  ["flink", 1],
  ["framework", 2],
  ["task", 2],
  ["network", 2],
  ["managed", 2],
  ["overhead", 1],
] as const;

/** The layers of a worker that it has said; none until it has registered. */
export function layersOf({ memory, memory_used }: TaskManagerInfo): Layer[] {
  return PLAN.flatMap(([name, depth]): Layer[] => {
    const planned = memory[name];
    if (planned === undefined) return [];
    const used = memory_used[name] ?? null;
    return [{ name, depth, planned, used, part: used === null || planned === 0 ? null : used / planned }];
  });
}

/** What the workers have together. */
export interface Totals {
  readonly registered: number;
  readonly starting: number;
  readonly slots: number;
  readonly free: number;
  readonly hosts: number;
  readonly cores: number | null;
  readonly memoryBytes: number | null;
}

/** Workers of one host share its cores and its memory; null: one of the hosts does not say them. */
export function totalsOf({ workers }: WorkersInfo): Totals {
  const up = workers.filter(({ worker }) => worker.address !== null).map(({ worker }) => worker);
  const hosts = new Map<string, TaskManagerInfo[]>();
  for (const worker of up) {
    const there = hosts.get(worker.host ?? "") ?? [];
    hosts.set(worker.host ?? "", [...there, worker]);
  }
  const most = (read: (worker: TaskManagerInfo) => number | null | undefined): number | null => {
    let sum = 0;
    for (const there of hosts.values()) {
      const known = there.map(read).filter((value) => value !== null && value !== undefined);
      if (known.length === 0) return null;
      sum += Math.max(...known);
    }
    return up.length === 0 ? null : sum;
  };
  return {
    registered: up.length,
    starting: workers.length - up.length,
    slots: up.reduce((sum, { slots }) => sum + slots, 0),
    free: up.reduce((sum, { free_slots }) => sum + free_slots, 0),
    hosts: hosts.size,
    cores: most(({ hardware }) => hardware?.cpu_cores),
    memoryBytes: most(({ hardware }) => hardware?.memory_bytes),
  };
}

/** Workers whose host, id, or a job or task in them has the text, whatever its case. */
export function matching(workers: readonly WorkerShown[], text: string): readonly WorkerShown[] {
  const wanted = text.trim().toLowerCase();
  if (wanted === "") return workers;
  const has = (value: string | null) => value !== null && value.toLowerCase().includes(wanted);
  return workers.filter(
    ({ worker, slots }) =>
      has(worker.id) ||
      has(worker.host) ||
      slots.some(
        (slot) => has(slot.job_name) || has(slot.job) || slot.tasks.some((task) => has(task.vertex_name)),
      ),
  );
}

/** How a worker is, the worst first. */
export type WorkerState = "silent" | "blocked" | "draining" | "starting" | "busy" | "idle";

const SILENT_MS = 25_000; // two heartbeats and a half, as they are configured at first

export function stateOf({ worker, slots }: WorkerShown, nowMs: number): WorkerState {
  if (worker.address === null) return "starting";
  if (worker.heartbeat_ms !== null && nowMs - worker.heartbeat_ms > SILENT_MS) return "silent";
  if (worker.draining) return "draining";
  if (worker.blocked_ms > 0) return "blocked";
  return slots.length > 0 ? "busy" : "idle";
}

/** What is in a slot in few words: `source (1), sink (1)`, the states that are not RUNNING with their names. */
export function tasksInWords(tasks: readonly TaskInSlot[]): string {
  return tasks
    .map(({ vertex_name, index, state }) => {
      const where = `${vertex_name} (${index + 1})`;
      return state === "RUNNING" ? where : `${where} ${state.toLowerCase()}`;
    })
    .join(", ");
}

import type { JobInfo, SubtaskInfo, TaskManagerInfo } from "../api/schema";
import { toneOfTask } from "./states";

/** A line of the user's program. */
export interface Place {
  /** With the folder, as the program was started. */
  readonly whole: string;
  /** The file and the line alone. */
  readonly short: string;
}

/** Of ``FILE:LINE``; null where nobody knows. */
export function placeOf(declaredAt: string | null): Place | null {
  if (declaredAt === null || declaredAt === "") return null;
  return { whole: declaredAt, short: declaredAt.slice(declaredAt.search(/[^/\\]*$/)) };
}

const TROUBLE = { bad: 0, warn: 1, busy: 2, good: 3, quiet: 4 } as const;

/** Those of a vertex, in trouble first, then the busiest: what one looks for is at the top. */
export function subtasksOf(job: JobInfo, vertex: string): SubtaskInfo[] {
  const found = job.subtasks.filter((one) => one.vertex === vertex);
  return found.sort(
    (a, b) =>
      TROUBLE[toneOfTask(a.state)] - TROUBLE[toneOfTask(b.state)] ||
      b.metrics.busy_per_s - a.metrics.busy_per_s ||
      b.metrics.backpressured_per_s - a.metrics.backpressured_per_s ||
      a.index - b.index,
  );
}

/** Host and process of a worker; its id where the cluster has no such worker any more. */
export function workerOf(workers: readonly TaskManagerInfo[], id: string | null): string | null {
  if (id === null) return null;
  const worker = workers.find((one) => one.id === id);
  if (worker === undefined) return id;
  return worker.pid === null ? `${worker.host} · ${id}` : `${worker.host} · process ${worker.pid}`;
}

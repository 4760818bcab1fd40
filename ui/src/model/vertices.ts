import type { JobInfo, Plan, SubtaskInfo } from "../api/schema";
import type { TaskState } from "./states";

/** One vertex of a running job, over its subtasks. Parts of time are 0 to 1, those of the worst subtask. */
export interface Vertex {
  readonly id: string;
  readonly name: string;
  readonly parallelism: number;
  readonly reads: readonly string[];
  readonly states: ReadonlyMap<TaskState, number>;
  /** Rows; null: they are committables of sinks, or nobody counts them. The command line shows the same. */
  readonly recordsIn: number | null;
  readonly recordsOut: number | null;
  readonly busy: number;
  readonly heldBack: number;
  readonly watermarkMs: number | null;
  /** Of the subtasks' rows: the most of one to the mean, 1 where all have the same; null without rows. */
  readonly skew: number | null;
}

const MS_PER_S = 1_000;

/** The vertices of the plan with what the subtasks count. */
export function verticesOf(plan: Plan, job: JobInfo): Vertex[] {
  const byVertex = new Map<string, SubtaskInfo[]>();
  for (const subtask of job.subtasks) {
    const known = byVertex.get(subtask.vertex);
    if (known === undefined) byVertex.set(subtask.vertex, [subtask]);
    else known.push(subtask);
  }
  const known = new Map(job.vertices.map((vertex) => [vertex.id, vertex]));
  return plan.nodes.map((node) => {
    const subtasks = byVertex.get(node.id) ?? [];
    const states = new Map<TaskState, number>();
    for (const { state } of subtasks) states.set(state, (states.get(state) ?? 0) + 1);
    const rows = subtasks.map(({ metrics }) => metrics.records_in);
    const watermarks = subtasks.flatMap(({ metrics }) => metrics.watermark ?? []);
    const running = subtasks.filter(({ state }) => state === "RUNNING"); // others keep their last figures
    const total = rows.reduce((sum, one) => sum + one, 0);
    return {
      id: node.id,
      name: subtasks[0]?.vertex_name ?? node.description.replaceAll("<br/>", ", "),
      parallelism: subtasks.length === 0 ? node.parallelism : subtasks.length,
      reads: (node.inputs ?? []).map(({ id }) => id),
      states,
      recordsIn: known.get(node.id)?.takes_rows === false ? null : total,
      recordsOut:
        known.get(node.id)?.gives_rows === false
          ? rowsSent(subtasks)
          : subtasks.reduce((sum, { metrics }) => sum + metrics.records_out, 0),
      busy: worst(running.map(({ metrics }) => metrics.busy_per_s)),
      heldBack: worst(running.map(({ metrics }) => metrics.backpressured_per_s)),
      watermarkMs:
        watermarks.length === 0 || watermarks.length < subtasks.length ? null : Math.min(...watermarks),
      skew: finite((Math.max(...rows) * rows.length) / total),
    };
  });
}

/** What writers have given to their sinks; null: these do not count. */
function rowsSent(subtasks: readonly SubtaskInfo[]): number | null {
  const sent = subtasks.flatMap(({ metrics }) =>
    Object.entries(metrics.user)
      .filter(([name]) => name.endsWith(".numRecordsSend") && !name.endsWith(".user.numRecordsSend"))
      .map(([, rows]) => rows),
  );
  return sent.length === 0 ? null : sent.reduce((sum, one) => sum + one, 0);
}

function worst(msPerS: readonly number[]): number {
  return Math.min(1, Math.max(0, ...msPerS) / MS_PER_S);
}

/** A tenth of its time waiting for room is low, half of it high: Flink's words. */
export function pressure(part: number): "ok" | "low" | "high" {
  return part > 0.5 ? "high" : part > 0.1 ? "low" : "ok";
}

export interface Bottleneck {
  readonly vertex: Vertex;
  readonly kind: "source" | "operator" | "sink";
  readonly sentence: string;
}

const BUSY = 0.8;

/**
 * What the others wait for: vertices that are not held back themselves, and either hold back one that they read, or
 * work all the time without anybody behind them. The busiest first; none where nothing waits.
 */
export function bottlenecksOf(vertices: readonly Vertex[]): Bottleneck[] {
  const byId = new Map(vertices.map((vertex) => [vertex.id, vertex]));
  const isRead = new Set(vertices.flatMap(({ reads }) => reads));
  const free = vertices.filter(({ heldBack }) => pressure(heldBack) === "ok");
  const holding = free.filter(({ reads }) =>
    reads.some((id) => pressure(byId.get(id)?.heldBack ?? 0) !== "ok"),
  );
  const candidates = holding.length > 0 ? holding : free.filter(({ busy }) => busy > BUSY);
  return [...candidates]
    .sort((a, b) => b.busy - a.busy)
    .map((vertex) => {
      const kind = vertex.reads.length === 0 ? "source" : isRead.has(vertex.id) ? "operator" : "sink";
      const part = `${(vertex.busy * 100).toFixed(0)} %`;
      const waits = holding.length > 0 ? "What it reads waits for it." : "Nothing waits for it yet.";
      return {
        vertex,
        kind,
        sentence: `${vertex.name} is busy ${part} of its time. ${waits} ${advice(kind, vertex)}`,
      };
    });
}

function advice(kind: Bottleneck["kind"], { skew, parallelism }: Vertex): string {
  if (skew !== null && skew > 2 && parallelism > 1) {
    return `One of its ${parallelism} subtasks gets ${skew.toFixed(1)} times its share of the rows: look at its keys.`;
  }
  switch (kind) {
    case "source":
      return "More partitions or files, and a higher parallelism, read faster.";
    case "operator":
      return "A higher parallelism, or less work for each row, helps.";
    case "sink":
      return "A higher parallelism of the sink, or fewer and larger commits, helps.";
  }
}

/** Nobody knows it, where nothing was counted, or what was counted is no number. */
function finite(value: number): number | null {
  return Number.isFinite(value) ? value : null;
}

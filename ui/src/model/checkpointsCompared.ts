import type { CheckpointFigures } from "../api/schema";
import { totalsOf } from "./checkpoints";

/** A figure of two snapshots. */
export interface Difference {
  readonly what: string;
  readonly unit: "ms" | "bytes" | "count";
  readonly one: number;
  readonly other: number;
}

/** Of two snapshots the whole, phase by phase, and the slowest subtask of each vertex that both have. */
export function comparedOf(one: CheckpointFigures, other: CheckpointFigures): Difference[] {
  return [...whole(one, other), ...vertices(one, other)];
}

function whole(one: CheckpointFigures, other: CheckpointFigures): Difference[] {
  const [a, b] = [sums(one), sums(other)];
  return [
    { what: "From its start to its end", unit: "ms", one: one.duration_ms, other: other.duration_ms },
    { what: "Longest wait for a barrier", unit: "ms", one: a.wait, other: b.wait },
    { what: "Longest alignment", unit: "ms", one: a.alignment, other: b.alignment },
    { what: "Longest standstill", unit: "ms", one: a.sync, other: b.sync },
    { what: "Longest write", unit: "ms", one: a.async, other: b.async },
    { what: "State", unit: "bytes", one: totalsOf(one).stateBytes, other: totalsOf(other).stateBytes },
    { what: "Written for it", unit: "bytes", one: a.written, other: b.written },
    { what: "Rows in flight in it", unit: "bytes", one: a.inFlight, other: b.inFlight },
    { what: "Subtasks", unit: "count", one: totalsOf(one).expected, other: totalsOf(other).expected },
  ];
}

function sums({ vertices }: CheckpointFigures) {
  const subtasks = vertices.flatMap((vertex) => vertex.subtasks);
  const longest = (of: (one: (typeof subtasks)[number]) => number) => Math.max(0, ...subtasks.map(of));
  const sum = (of: (one: (typeof subtasks)[number]) => number) =>
    subtasks.reduce((all, subtask) => all + of(subtask), 0);
  return {
    wait: longest(({ start_delay_ms }) => start_delay_ms),
    alignment: longest(({ alignment_ms }) => alignment_ms),
    sync: longest(({ sync_ms }) => sync_ms),
    async: longest(({ async_ms }) => async_ms),
    written: sum(({ new_bytes }) => new_bytes),
    inFlight: sum(({ persisted_bytes }) => persisted_bytes),
  };
}

function vertices(one: CheckpointFigures, other: CheckpointFigures): Difference[] {
  const slowest = ({ subtasks }: CheckpointFigures["vertices"][number]) =>
    Math.max(0, ...subtasks.map(({ acked_after_ms }) => acked_after_ms));
  const known = new Map(other.vertices.map((vertex) => [vertex.vertex, vertex]));
  return one.vertices.flatMap((vertex): Difference[] => {
    const same = known.get(vertex.vertex);
    if (same === undefined) return [];
    return [{ what: `Slowest of ${vertex.name}`, unit: "ms", one: slowest(vertex), other: slowest(same) }];
  });
}

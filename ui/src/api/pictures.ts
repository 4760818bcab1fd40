import type {
  CheckpointFigures,
  Change,
  CheckpointsInfo,
  JobInList,
  JobInfo,
  Overview,
  SubtaskInfo,
  operations,
} from "./schema";

/** The data of an event of GET /unistream/events. */
export type LiveEvent =
  operations["events_unistream_events_get"]["responses"][200]["content"]["text/event-stream"];

export type Whole = Overview | JobInfo | CheckpointsInfo;

/** What is known of a topic, as it was at a time of the cluster's clock. */
export interface Picture {
  readonly version: number;
  readonly atMs: number;
  readonly whole: Whole;
}

export type Pictures = ReadonlyMap<string, Picture>;

/** `lost`: a change is not of what is here, so all has to be asked for again. */
export type Taken = { readonly pictures: Pictures; readonly outcome: "changed" | "same" | "lost" };

/** The pictures after an event. Never a mixture of two. */
export function taken(pictures: Pictures, event: LiveEvent): Taken {
  switch (event.event) {
    case "overview":
    case "job":
    case "checkpoints":
      return put(pictures, event.topic, {
        version: event.version,
        atMs: event.at_ms,
        whole: event.whole,
      });
    case "change": {
      const before = pictures.get(event.topic);
      if (before !== undefined && event.version <= before.version) return { pictures, outcome: "same" };
      if (before === undefined || event.base !== before.version) return { pictures, outcome: "lost" };
      const whole = changed(event.topic, before.whole, event);
      if (whole === null) return { pictures, outcome: "lost" };
      return put(pictures, event.topic, { version: event.version, atMs: event.at_ms, whole });
    }
    case "refused": {
      const rest = new Map(pictures);
      rest.delete(event.topic);
      return { pictures: rest, outcome: "changed" };
    }
    case "hello":
    case "beat":
    case "end":
      return { pictures, outcome: "same" };
  }
}

function put(pictures: Pictures, topic: string, picture: Picture): Taken {
  return { pictures: new Map(pictures).set(topic, picture), outcome: "changed" };
}

type Fields = Readonly<Record<string, unknown>>;

function changed(topic: string, whole: Whole, change: Change): Whole | null {
  const [field, keyOf] = rowsOf(topic);
  const before = (whole as unknown as Fields)[field] as readonly unknown[];
  const rows = changedRows(before, change.rows, change.order, keyOf);
  if (rows === null) return null;
  return { ...(whole as unknown as Fields), ...change.fields, [field]: rows } as unknown as Whole;
}

function changedRows(
  before: readonly unknown[],
  rows: readonly unknown[],
  order: readonly string[] | null,
  keyOf: (row: unknown) => string,
): unknown[] | null {
  const now = new Map(rows.map((row) => [keyOf(row), row]));
  if (order === null) return before.map((row) => now.get(keyOf(row)) ?? row);
  const known = new Map(before.map((row) => [keyOf(row), row]));
  const found = order.map((key) => now.get(key) ?? known.get(key));
  return found.includes(undefined) ? null : found;
}

function rowsOf(topic: string): [field: string, keyOf: (row: unknown) => string] {
  if (topic === "overview") return ["jobs", (row) => (row as JobInList).summary.job];
  if (topic.startsWith("job/")) {
    return ["subtasks", (row) => `${(row as SubtaskInfo).vertex} ${(row as SubtaskInfo).index}`];
  }
  return ["latest", (row) => String((row as CheckpointFigures).checkpoint_id)];
}

import type { JobTimeline } from "../api/schema";
import { count } from "../format/numbers";
import { type JobState, type TaskState, type Tone, toneOfJob, toneOfTask } from "./states";

/** A part of the axis, ms. */
export interface Range {
  readonly fromMs: number;
  readonly toMs: number;
}

/** Something that lasted; `toMs` equal to `fromMs`: a moment. */
export interface Item extends Range {
  readonly tone: Tone;
  readonly text: string;
}

/** A line of the picture. */
export interface Lane {
  readonly name: string;
  readonly items: readonly Item[];
}

/** What stands on the axis, a line for each kind, and for each vertex and each sink. */
export function lanesOf(timeline: JobTimeline): Lane[] {
  const endMs = timeline.ended_ms ?? timeline.now_ms;
  const lanes: Lane[] = [
    { name: "Job", items: states(timeline, endMs) },
    { name: "Failures", items: timeline.failures.map((one) => moment(one.at_ms, "bad", failureText(one))) },
    { name: "Rescales", items: timeline.rescales.map((one) => moment(one.at_ms, "busy", one.detail)) },
    ...byName(
      timeline.executions.map((one) => [
        one.vertex_name,
        {
          fromMs: one.started_ms,
          toMs: one.ended_ms ?? endMs,
          tone: toneOfTask(one.state satisfies TaskState),
          text: `attempt ${one.attempt} of ${count(one.subtasks)} subtasks: ${one.state.toLowerCase()}`,
        },
      ]),
    ),
    ...(["Checkpoints", "Savepoints"] as const).map((name) => ({
      name,
      items: timeline.checkpoints
        .filter(({ kind }) => (kind === "checkpoint") === (name === "Checkpoints"))
        .map((one) => snapshot(one, endMs)),
    })),
    ...byName(
      timeline.commits.map((one) => [
        `Commits of ${one.sink}`,
        moment(
          one.at_ms,
          "good",
          `checkpoint ${one.checkpoint_id}: ${count(one.rows)} rows` +
            (one.table_version === null ? "" : ` in version ${one.table_version}`),
        ),
      ]),
    ),
  ];
  return lanes.filter(({ items }) => items.length > 0);
}

function states(timeline: JobTimeline, endMs: number): Item[] {
  return timeline.states.map(({ at_ms, state }, index) => ({
    fromMs: at_ms,
    toMs: Math.max(at_ms, timeline.states[index + 1]?.at_ms ?? endMs),
    tone: toneOfJob(state as JobState),
    text: state,
  }));
}

function snapshot(one: JobTimeline["checkpoints"][number], endMs: number): Item {
  const tone: Tone = one.state === "completed" ? "good" : one.state === "failed" ? "bad" : "busy";
  const why = one.reason === null || one.reason === "" ? "" : `: ${one.reason}`;
  return {
    fromMs: one.triggered_ms,
    toMs: one.duration_ms === null ? Math.max(endMs, one.triggered_ms) : one.triggered_ms + one.duration_ms,
    tone,
    text: `${one.checkpoint_id} ${one.state}${why}`,
  };
}

function failureText({ text, task }: JobTimeline["failures"][number]): string {
  return task === null ? text : `${text} (${task})`;
}

function moment(atMs: number, tone: Tone, text: string): Item {
  return { fromMs: atMs, toMs: atMs, tone, text };
}

function byName(named: readonly (readonly [string, Item])[]): Lane[] {
  const lanes = new Map<string, Item[]>();
  for (const [name, item] of named) lanes.set(name, [...(lanes.get(name) ?? []), item]);
  return [...lanes].map(([name, items]) => ({ name, items }));
}

const LEAST_MS = 100;

/** All of the job's life. */
export function wholeOf({ began_ms, ended_ms, now_ms }: JobTimeline): Range {
  return { fromMs: began_ms, toMs: Math.max(ended_ms ?? now_ms, began_ms + LEAST_MS) };
}

/** What a URL asks for, within the whole; all of it if the URL says none. */
export function rangeOf(whole: Range, from: number | null, to: number | null): Range {
  const fromMs = Math.max(whole.fromMs, from ?? whole.fromMs);
  const toMs = Math.min(whole.toMs, to ?? whole.toMs);
  return toMs - fromMs >= LEAST_MS ? { fromMs, toMs } : whole;
}

/** `factor` below 1: closer, around `at`, a part of the range from 0 to 1. */
export function zoomed(whole: Range, { fromMs, toMs }: Range, factor: number, at = 0.5): Range {
  const length = toMs - fromMs;
  const wanted = Math.min(Math.max(length * factor, LEAST_MS), whole.toMs - whole.fromMs);
  return held(whole, fromMs + (length - wanted) * at, wanted);
}

/** By a part of its length: negative ones are earlier. */
export function moved(whole: Range, { fromMs, toMs }: Range, part: number): Range {
  return held(whole, fromMs + (toMs - fromMs) * part, toMs - fromMs);
}

function held(whole: Range, fromMs: number, length: number): Range {
  const start = Math.round(Math.min(Math.max(fromMs, whole.fromMs), whole.toMs - length));
  return { fromMs: start, toMs: Math.round(start + length) };
}

/** Where an item stands, in parts of the range; several that would be one stroke are one, with the text of the worst. */
export interface Stroke {
  readonly left: number;
  readonly width: number;
  readonly tone: Tone;
  readonly text: string;
}

const WORST: Readonly<Record<Tone, number>> = { bad: 4, warn: 3, busy: 2, good: 1, quiet: 0 };

/** What is to be drawn of a lane: items that are nearer than `least` (a part of the range) are drawn as one. */
export function strokesOf(lane: Lane, { fromMs, toMs }: Range, least: number): Stroke[] {
  const length = toMs - fromMs;
  const strokes: (Stroke & { count: number; worst: string })[] = [];
  const visible = lane.items
    .filter((item) => item.toMs >= fromMs && item.fromMs <= toMs)
    .sort((a, b) => a.fromMs - b.fromMs);
  for (const item of visible) {
    const left = Math.max(0, (item.fromMs - fromMs) / length);
    const width = Math.max(least, Math.min(1, (item.toMs - fromMs) / length) - left);
    const last = strokes.at(-1);
    if (last !== undefined && last.width <= least && width <= least && left < last.left + least) {
      const number = last.count + 1;
      const isWorse = WORST[item.tone] > WORST[last.tone];
      const [tone, worst] = isWorse ? [item.tone, item.text] : [last.tone, last.worst];
      const text = `${worst} (and ${count(number - 1)} more)`;
      strokes[strokes.length - 1] = { ...last, tone, worst, count: number, text };
    } else {
      strokes.push({ left, width, tone: item.tone, text: item.text, worst: item.text, count: 1 });
    }
  }
  return strokes;
}

const STEPS_MS = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500].map((ms) => ms),
  ...[1, 2, 5, 10, 15, 30].map((s) => s * 1_000),
  ...[1, 2, 5, 10, 15, 30].map((min) => min * 60_000),
  ...[1, 2, 3, 6, 12].map((h) => h * 3_600_000),
  ...[1, 2, 7, 14, 30, 90, 365].map((d) => d * 86_400_000),
] as const;

/** Round moments of a range, at most so many. */
export function ticksOf({ fromMs, toMs }: Range, most: number): number[] {
  const step = STEPS_MS.find((one) => (toMs - fromMs) / one <= most) ?? (toMs - fromMs) / most;
  const ticks: number[] = [];
  for (let at = Math.ceil(fromMs / step) * step; at <= toMs; at += step) ticks.push(at);
  return ticks;
}

/** A row of the table that says what the picture shows. */
export interface Row extends Item {
  readonly lane: string;
}

/** In a range, by time; at most so many, the newest ones. */
export function rowsOf(lanes: readonly Lane[], { fromMs, toMs }: Range, most: number): Row[] {
  return lanes
    .flatMap(({ name, items }) => items.map((item) => ({ ...item, lane: name })))
    .filter((item) => item.toMs >= fromMs && item.fromMs <= toMs)
    .sort((a, b) => a.fromMs - b.fromMs)
    .slice(-most);
}

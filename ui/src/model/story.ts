/** Something that happened in a simulated run, as `unistream simulate --story-file` writes it. */
export interface StoryLine {
  readonly at_ms: number;
  readonly text: string;
  /** The process where it happened, or that has sent the message; "": that of nobody. */
  readonly source: string;
  /** The process that got the message, or should have; "": it is none. */
  readonly target: string;
  readonly lost: boolean;
}

export interface Story {
  readonly title: string;
  readonly reason: string;
  readonly faults: string;
  readonly lines: readonly StoryLine[];
}

/** The story in a file, or one sentence why it is none. */
export function storyOf(text: string): Story | string {
  let found: unknown;
  try {
    found = JSON.parse(text);
  } catch {
    return "This is no JSON. The file is one that `unistream simulate --story-file` has written.";
  }
  if (!isRecord(found) || found["format"] !== "unistream-story") {
    return "This is no story. The file is one that `unistream simulate --story-file` has written.";
  }
  if (found["version"] !== 1) {
    return `This story has version ${String(found["version"])}; this page reads version 1. Take the page of the unistream that has written it.`;
  }
  const { title, reason, faults, lines } = found;
  const read = Array.isArray(lines) ? lines.map(lineOf) : [];
  const wrong = read.findIndex((line) => line === null);
  if (!Array.isArray(lines) || wrong >= 0) {
    return `The story is damaged: ${Array.isArray(lines) ? `line ${wrong + 1} is none` : "it has no lines"}.`;
  }
  return {
    title: textOf(title),
    reason: textOf(reason),
    faults: textOf(faults),
    lines: read.filter((line) => line !== null),
  };
}

function lineOf(line: unknown): StoryLine | null {
  if (!isRecord(line) || typeof line["at_ms"] !== "number" || typeof line["text"] !== "string") return null;
  return {
    at_ms: line["at_ms"],
    text: line["text"],
    source: textOf(line["source"]),
    target: textOf(line["target"]),
    lost: line["lost"] === true,
  };
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

export type Kind = "fault" | "lost" | "message" | "event";

/** A row of the picture. `from`, `to`: numbers of lanes; null: none. */
export interface StoryRow {
  readonly number: number;
  readonly atMs: number;
  readonly text: string;
  readonly kind: Kind;
  readonly from: number | null;
  readonly to: number | null;
}

export interface Picture {
  readonly lanes: readonly string[];
  readonly rows: readonly StoryRow[];
}

export interface StoryView {
  /** Also messages that arrived and were answered. */
  readonly messages: boolean;
  readonly text: string;
}

/**
 * The lines that a view shows, and a lane for each process that they name: the user, the masters, then the workers as
 * they come.
 */
export function pictureOf({ lines }: Story, { messages, text }: StoryView): Picture {
  const wanted = text.trim().toLowerCase();
  const shown = lines
    .map((line, number) => ({ line, number, kind: kindOf(line) }))
    .filter(({ line, kind }) => {
      const has = [line.text, line.source, line.target].some((one) => one.toLowerCase().includes(wanted));
      return has && (messages || kind !== "message");
    });
  const named = new Set(
    shown.flatMap(({ line }) => [line.source, line.target].filter((name) => name !== "")),
  );
  const lanes = [...named]
    .map((name, seen) => ({ name, seen }))
    .sort((a, b) => rank(a.name) - rank(b.name) || a.seen - b.seen)
    .map(({ name }) => name);
  const places = new Map(lanes.map((name, place) => [name, place]));
  return {
    lanes,
    rows: shown.map(({ line, number, kind }) => ({
      number,
      atMs: line.at_ms,
      text: kind === "message" ? line.text.replace(/ -> \w+:\/\/[^:]*/, "") : line.text,
      kind,
      from: places.get(line.source) ?? null,
      to: places.get(line.target) ?? null,
    })),
  };
}

function rank(name: string): number {
  return name === "user" ? 0 : name.startsWith("master") ? 1 : 2;
}

function kindOf({ text, target, lost }: StoryLine): Kind {
  if (/^(FAULT|VIOLATION)/.test(text)) return "fault";
  if (lost) return "lost";
  return target !== "" && text.includes(" -> ") ? "message" : "event";
}

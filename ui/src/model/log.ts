import type { JobLogLine } from "../api/schema";
import { UNKNOWN } from "../format/numbers";
import { isoTime } from "../format/times";
import type { Tone } from "./states";

export const LINES_KEPT = 10_000;

/** The lines that are known, with new ones behind them; the oldest go when there are too many. */
export function withNew(known: readonly JobLogLine[], more: readonly JobLogLine[]): readonly JobLogLine[] {
  const last = known.at(-1)?.seq ?? 0;
  const fresh = more.filter(({ seq }) => seq > last);
  return fresh.length === 0 ? known : [...known, ...fresh].slice(-LINES_KEPT);
}

export const LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] as const;
export type Level = (typeof LEVELS)[number];

/** Lines of a level or a worse one whose task, logger or message has the text, whatever its case. */
export function filtered(lines: readonly JobLogLine[], text: string, least: Level): readonly JobLogLine[] {
  const wanted = text.trim().toLowerCase();
  const from = LEVELS.indexOf(least);
  return lines.filter((line) => {
    const level = LEVELS.findIndex((one) => one === line.level);
    if (level !== -1 && level < from) return false; // a level of the user's own is shown
    return [line.message, line.task, line.logger].some((one) => one.toLowerCase().includes(wanted));
  });
}

/** As text, to be copied: one line for each, and for what was dropped before it. */
export function textOf(lines: readonly JobLogLine[]): string {
  return lines
    .flatMap(({ at_ms, level, task, logger, message, dropped }) => [
      ...(dropped > 0 ? [`… ${dropped} lines of ${task} were dropped: it logs too much`] : []),
      `${isoTime(at_ms) ?? UNKNOWN} ${level} ${task} ${logger}: ${message}`,
    ])
    .join("\n");
}

export function toneOfLevel(level: string): Tone {
  if (level === "ERROR" || level === "CRITICAL") return "bad";
  return level === "WARNING" ? "warn" : "quiet";
}

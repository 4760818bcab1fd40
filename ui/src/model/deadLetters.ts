import type { JobInfo } from "../api/schema";

/** Rows of one operator that it could not process: sent away, or left out. */
export interface Failing {
  readonly operator: string;
  readonly letters: number;
  readonly skipped: number;
}

/** The operators that have failed for rows, those with the most first. */
export function failingOf(info: Pick<JobInfo, "dead_letters" | "skipped_rows">): Failing[] {
  const names = new Set([...Object.keys(info.dead_letters), ...Object.keys(info.skipped_rows)]);
  return [...names]
    .map((operator) => ({
      operator,
      letters: info.dead_letters[operator] ?? 0,
      skipped: info.skipped_rows[operator] ?? 0,
    }))
    .sort((a, b) => b.letters + b.skipped - (a.letters + a.skipped) || a.operator.localeCompare(b.operator));
}

/** A table that holds letters, as the command line takes it. `sure`: its sink has the name that such sinks get. */
export interface LettersTable {
  readonly uid: string;
  readonly uri: string;
  readonly sure: boolean;
}

const SUFFIX = "-dead-letters";

/** Where letters may be: first the sinks that are called as `dead_letters_to` calls them. */
export function lettersTables(writes: JobInfo["writes"]): LettersTable[] {
  return Object.entries(writes)
    .flatMap(([uid, uris]) => uris.map((uri) => ({ uid, uri, sure: uid.endsWith(SUFFIX) })))
    .sort((a, b) => Number(b.sure) - Number(a.sure) || a.uid.localeCompare(b.uid));
}

/** A word of a POSIX shell. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
}

/** A table for `unistream dead-letters`: a path, or the URL of a store; null: only the sink itself can read it. */
export function tableArgument(uri: string): string | null {
  if (uri.startsWith("file://")) return shellWord(decodeURI(uri.slice("file://".length)));
  return /^(\/|s3a?:\/\/|gs:\/\/|abfss?:\/\/)/.test(uri) ? shellWord(uri) : null;
}

export interface Choice {
  readonly operator: string;
  readonly error: string;
  readonly pipeline: string;
}

/** The command that replays corrected letters; the file names them. */
export function editsCommand(table: string, { pipeline }: Pick<Choice, "pipeline">): string {
  const code = pipeline.trim() === "" ? "MODULE:FUNCTION" : shellWord(pipeline.trim());
  return `unistream dead-letters replay ${table} ${code} --edits edits.jsonl`;
}

/** The commands that look at the letters of a table and process them again. */
export function commandsOf(table: string, { operator, error, pipeline }: Choice) {
  const chosen = [
    ...(operator.trim() === "" ? [] : ["--operator", shellWord(operator.trim())]),
    ...(error.trim() === "" ? [] : ["--error", shellWord(error.trim())]),
  ];
  const command = (...words: string[]) => ["unistream", "dead-letters", ...words].join(" ");
  return {
    list: command("list", table),
    show: command("show", table, ...chosen),
    replay: command(
      "replay",
      table,
      pipeline.trim() === "" ? "MODULE:FUNCTION" : shellWord(pipeline.trim()),
      ...chosen,
    ),
  };
}

import type { OperatorStates, QueryAnswer, StateShown } from "../api/schema";

type Cells = readonly (readonly (string | null)[])[];

/** What the page of a job's state shows, as the URL says it. Without `id`: the newest snapshot. */
export interface StateView {
  readonly id?: number;
  readonly sql?: string;
}

const SQL_CHARACTERS_MAX = 20_000;

/** The view of a URL; what it says wrongly is left out. */
export function stateViewOf(search: Record<string, unknown>): StateView {
  const { id, sql } = search;
  return {
    ...(typeof id === "number" && Number.isSafeInteger(id) && id >= 0 ? { id } : {}),
    ...(typeof sql === "string" && sql.trim() !== "" && sql.length <= SQL_CHARACTERS_MAX ? { sql } : {}),
  };
}

/** The first rows of a table; its name comes in quotes. */
export function firstRows(table: string): string {
  return `SELECT * FROM ${table} LIMIT 100`;
}

/** What the box holds before anybody writes: the largest state that can be read as a table. */
export function suggestedQuery(operators: readonly OperatorStates[]): string {
  const [largest] = operators
    .flatMap(({ states }) => states)
    .filter(({ table }) => table !== null)
    .sort((a, b) => (b.rows ?? 0) - (a.rows ?? 0));
  return largest?.table == null ? "" : firstRows(largest.table);
}

/** The key of a state with its types: `user string`; null: it has none, or nobody knows it. */
export function keyOf({ keys, columns }: Pick<StateShown, "keys" | "columns">): string | null {
  if (keys === null || columns === null || keys.length === 0) return null;
  return columns.flatMap(({ name, type }) => (keys.includes(name) ? [`${name} ${type}`] : [])).join(", ");
}

/** What a state holds for a key, with its types; null: nobody knows it before it is read. */
export function valueOf({ keys, columns }: Pick<StateShown, "keys" | "columns">): string | null {
  if (columns === null) return null;
  const own = columns.filter(({ name }) => name !== "__key_group" && keys?.includes(name) !== true);
  return own.map(({ name, type }) => `${name} ${type}`).join(", ");
}

/** Where a refusal says that the statement is wrong: `line 2, column 6: …`, from 0 in its text. */
export function placeOf(refusal: string, sql: string): number | null {
  const found = /^line (\d+), column (\d+): /.exec(refusal);
  if (found === null) return null;
  const lines = sql.split("\n");
  const line = Number(found[1]) - 1;
  const before = lines.slice(0, line).reduce((sum, text) => sum + text.length + 1, 0);
  const characters = Array.from(lines[line] ?? "").slice(0, Number(found[2]) - 1); // of Unicode, as the server counts
  return Math.min(before + characters.join("").length, sql.length);
}

/** Numbers stand to the right. */
export function isNumber(type: string): boolean {
  return /^U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?$|^(FLOAT|DOUBLE)$|^DECIMAL\(/.test(type);
}

/** For a spreadsheet: `,` makes RFC 4180, a tab what is pasted into cells. A null is empty, an empty text `""`. */
export function separated(
  { columns, rows }: Pick<QueryAnswer["result"], "columns" | "rows">,
  by: "," | "\t",
) {
  const lines: Cells = [columns.map(({ name }) => name), ...rows];
  return lines.map((cells) => cells.map((cell) => quoted(cell, by)).join(by)).join("\r\n");
}

function quoted(cell: string | null, by: string): string {
  if (cell === null) return "";
  const needsQuotes = cell === "" || cell.includes(by) || /["\r\n]/.test(cell);
  return needsQuotes ? `"${cell.replaceAll('"', '""')}"` : cell;
}

const WIDTH_LEAST = 6;
const WIDTH_MOST = 48;
const MEASURED = 200;

/** Characters for each column, of its name and its first values: a width that does not jump while one scrolls. */
export function widthsOf({ columns, rows }: Pick<QueryAnswer["result"], "columns" | "rows">): number[] {
  return columns.map(({ name, type }, index) => {
    const values = rows.slice(0, MEASURED).map((row) => row[index]?.length ?? 4);
    return Math.min(WIDTH_MOST, Math.max(WIDTH_LEAST, name.length, type.length, ...values) + 2);
  });
}

/** The rows of a list that are to be drawn: those that are seen, and some more on both sides. */
export function shownRows(
  { top, height }: { readonly top: number; readonly height: number },
  rowHeight: number,
  count: number,
): { readonly first: number; readonly last: number } {
  const more = 12;
  const first = Math.max(0, Math.floor(top / rowHeight) - more);
  return { first, last: Math.min(count, Math.max(first, Math.ceil((top + height) / rowHeight) + more)) };
}

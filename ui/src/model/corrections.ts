import type { LetterShown } from "../api/schema";

/** Texts of letters as somebody has changed them, by letter. */
export type Corrections = ReadonlyMap<string, string>;

/** With another text of a letter; the text that it has is no correction. */
export function corrected(corrections: Corrections, letter: LetterShown, text: string): Corrections {
  const next = new Map(corrections);
  if (text === letter.row) next.delete(letter.letter);
  else next.set(letter.letter, text);
  return next;
}

/**
 * Why a text cannot be a row; null: it can, as far as a page knows. Types are checked when it is replayed, before
 * anything is begun. A record of a source is any text.
 */
export function wrongIn(letter: LetterShown, text: string, areRecords: boolean): string | null {
  if (areRecords) return null;
  const now = parsed(text);
  if (now === null) return "This is no JSON object.";
  const before = parsed(letter.row) ?? {};
  const missing = Object.keys(before).find((name) => !Object.hasOwn(now, name));
  if (missing !== undefined) return `Column ${missing} is missing; null is written as null.`;
  const added = Object.keys(now).find((name) => !Object.hasOwn(before, name));
  return added === undefined ? null : `The row has no column ${added}.`;
}

function parsed(text: string): object | null {
  try {
    const found: unknown = JSON.parse(text);
    return typeof found === "object" && found !== null && !Array.isArray(found) ? found : null;
  } catch {
    return null;
  }
}

/**
 * The file for `unistream dead-letters replay --edits`. Rows go as text, since a number in JSON may have more digits
 * than one of a browser.
 */
export function fileOf(corrections: Corrections, areRecords: boolean): string {
  const lines = [...corrections].map(([letter, text]) =>
    JSON.stringify(areRecords ? { letter, raw: text } : { letter, row: text }),
  );
  return `${lines.join("\n")}\n`;
}

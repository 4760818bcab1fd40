import type { Correction, LetterGroup, LetterShown, ReplayBody, ReplayOperation } from "../api/schema";
import { count } from "../format/numbers";
import { type Corrections, wrongIn } from "./corrections";
import type { Choice } from "./deadLetters";
import type { Told } from "./operations";

/** What the API says of a replay, as an answer to who watches it. */
export function replayTold({ status, operation }: ReplayOperation): Told {
  const byJob = operation?.job ?? undefined;
  if (operation === null || status.id === "IN_PROGRESS") {
    return { is: "running", ...(byJob === undefined ? {} : { byJob }) };
  }
  return {
    is: "done",
    ...(byJob === undefined ? {} : { newJob: byJob }),
    ...(operation.state === null ? {} : { state: operation.state }),
    replay: {
      letters: operation.letters,
      failedAgain: operation.failed_again,
      unread: operation.unread,
      goesOn: operation.goes_on,
      failure: operation.failure,
    },
  };
}

/** What the API is asked for. Corrected letters are replayed, and no others; without any, all that are chosen. */
export function replayBody(
  { table, triggerId, fromEmptyState }: Pick<ReplayBody, "table" | "triggerId" | "fromEmptyState">,
  choice: Pick<Choice, "operator" | "error">,
  corrections: Corrections,
  areRecords: boolean,
): ReplayBody {
  const corrected = [...corrections].map(([letter, text]): Correction => {
    return { letter, row: areRecords ? null : text, raw: areRecords ? text : null };
  });
  return {
    table,
    triggerId,
    fromEmptyState,
    operator: choice.operator.trim(),
    error: choice.error.trim(),
    letters: [],
    corrections: corrected,
  };
}

/** How many letters that were chosen are not replayed yet. */
export function leftOf(
  groups: readonly LetterGroup[],
  { operator, error }: Pick<Choice, "operator" | "error">,
): number {
  const [of, as] = [operator.trim(), error.trim()];
  return groups
    .filter((group) => of === "" || group.operator === of || group.operator_uid === of)
    .filter((group) => as === "" || group.error_type === as)
    .reduce((sum, group) => sum + group.letters - group.replayed, 0);
}

/** What is replayed, in words. */
export function chosenOf(
  groups: readonly LetterGroup[],
  choice: Pick<Choice, "operator" | "error">,
  corrections: Corrections,
): string {
  const isCorrected = corrections.size > 0;
  const letters = isCorrected ? corrections.size : leftOf(groups, choice);
  return `${count(letters)} ${isCorrected ? "corrected " : ""}${letters === 1 ? "letter" : "letters"}`;
}

/** Why the corrections cannot be replayed as they are; null: they can. */
export function wrongAmong(
  letters: readonly LetterShown[],
  corrections: Corrections,
  areRecords: boolean,
): string | null {
  const wrong = letters.filter((shown) => {
    const text = corrections.get(shown.letter);
    return text !== undefined && wrongIn(shown, text, areRecords) !== null;
  });
  if (wrong.length === 0) return null;
  return wrong.length === 1
    ? "One correction is no row yet."
    : `${count(wrong.length)} corrections are no rows yet.`;
}

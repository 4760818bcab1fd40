import type { JobInList } from "../api/schema";
import { duration } from "../format/times";

/** What is wrong with a job, for one line of a list; null: nothing. */
export function whyOf({ summary, figures }: JobInList): string | null {
  if (figures === null) return summary.state === "FAILED" ? summary.failure : null;
  const [silent] = [...figures.silent].sort((a, b) => b.seconds - a.seconds);
  if (silent !== undefined) {
    return `Source ${silent.name} has had no answer for ${duration(silent.seconds * 1_000)}.`;
  }
  return summary.state === "RUNNING" || figures.failure === "" ? null : figures.failure;
}

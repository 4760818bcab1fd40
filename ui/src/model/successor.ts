import type { JobInList, JobInfo } from "../api/schema";

/**
 * The newest job of the same name that was submitted since a job has ended, as an upgrade and a start from a savepoint do it;
 * null: there is none.
 */
export function successorOf(
  { job, name, ended_ms }: Pick<JobInfo, "job" | "name" | "ended_ms">,
  jobs: readonly JobInList[],
): JobInList["summary"] | null {
  if (ended_ms === null) return null;
  return jobs
    .map(({ summary }) => summary)
    .filter((other) => other.job !== job && other.name === name && other.submitted_ms >= ended_ms)
    .reduce<JobInList["summary"] | null>(
      (newest, one) => (newest === null || one.submitted_ms > newest.submitted_ms ? one : newest),
      null,
    );
}

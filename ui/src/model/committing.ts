import type { JobCommits, JobInfo } from "../api/schema";
import { count } from "../format/numbers";
import { duration } from "../format/times";
import type { Sample } from "./rates";
import { trendOf } from "./behind";

/** Commits go on beside the rows, so a slow one holds nothing back: what it makes late is what readers of a table see. */
export interface CommitWait {
  readonly sink: string;
  readonly checkpoints: number;
  readonly committables: number;
  /** When the oldest of them was taken; null: nobody knows. */
  readonly sinceMs: number | null;
}

/** One checkpoint is being committed while the next one is taken; from the second on a sink waits. */
const IN_TIME = 1;
/** It grows by less than this for each second: as before. */
const STILL = 0.1;

/** A counter that each committer has from its start. */
const COMMITS = ".committedCommittables";

/**
 * Some sink is so far behind its job's checkpoints that it is worth asking what waits: that opens a snapshot. Whoever has had
 * nothing to commit looks the same from here.
 */
export function mayWait({ ended_ms, sinks, checkpoints, metrics }: JobInfo): boolean {
  if (ended_ms !== null) return false;
  const complete = checkpoints.filter(({ state }) => state === "completed");
  if (Object.keys(sinks).length === 0) {
    // Of a sink that has never committed only its committer is known: its first commit may be the one that hangs.
    return complete.length > IN_TIME && Object.keys(metrics).some((name) => name.endsWith(COMMITS));
  }
  return Object.values(sinks).some(
    ({ checkpoint_id: newest }) =>
      complete.filter(({ checkpoint_id: id }) => id > (newest ?? -1)).length > IN_TIME,
  );
}

/** Sinks whose commits do not keep up with the checkpoints, the one that waits for the longest time first. */
export function commitWaitsOf({ sinks }: JobCommits): CommitWait[] {
  return sinks
    .flatMap(({ uid, staged }): CommitWait[] => {
      const waiting = (staged ?? []).filter(({ committables }) => committables > 0);
      if (waiting.length <= IN_TIME) return [];
      const since = waiting.flatMap(({ since_ms }) => since_ms ?? []);
      return [
        {
          sink: uid,
          checkpoints: waiting.length,
          committables: waiting.reduce((sum, { committables }) => sum + committables, 0),
          sinceMs: since.length === 0 ? null : Math.min(...since),
        },
      ];
    })
    .sort((a, b) => (a.sinceMs ?? Infinity) - (b.sinceMs ?? Infinity) || b.checkpoints - a.checkpoints);
}

/** `waited`: its age in ms at several times, for whether it gets worse. */
export function commitSentence(wait: CommitWait, nowMs: number, waited: readonly Sample[]): string {
  const age = wait.sinceMs === null ? "" : `, the oldest for ${duration(Math.max(0, nowMs - wait.sinceMs))}`;
  const what = `${count(wait.checkpoints)} checkpoints (${count(wait.committables)} committables)`;
  return `${wait.sink} waits for its commits: ${what} are written and not visible${age}. ${worse(waited)}Its table or topic answers too slowly: fewer and larger commits, by a longer checkpoint interval, help.`;
}

function worse(waited: readonly Sample[]): string {
  const trend = trendOf(waited);
  if (trend === null) return "";
  const perSecond = trend / 1_000;
  if (Math.abs(perSecond) < STILL) return "They wait for about as long as before. ";
  return perSecond > 0 ? "It gets worse. " : "It gets better. ";
}

import type { Procedure } from "../api/schema";
import type { Tone } from "./states";

/** A command reports each 10 s that it lives. */
export const SILENT_MS = 45_000;

export type StepState = "done" | "now" | "left";

export interface StepShown {
  readonly name: string;
  readonly state: StepState;
}

/** How a procedure is shown. `goesOn`: the command that goes on with it, if somebody has to type it. */
export interface ProcedureShown {
  readonly state: string;
  readonly tone: Tone;
  readonly steps: readonly StepShown[];
  readonly says: string;
  readonly goesOn: string | null;
}

const SILENT =
  "Its process has not been heard of for a while: it may have died, or cannot reach this cluster.";

/** `nowMs`: by the clock of the cluster, as the times of the reports are. */
export function shownOf({ report, reported_ms }: Procedure, nowMs: number): ProcedureShown {
  const steps = report.steps.map((name, index) => ({
    name,
    state: stepState(index, report.done, isOver(report)),
  }));
  const goesOn = report.goes_on === "" ? null : report.goes_on;
  switch (report.state) {
    case "RUNS":
      return nowMs - reported_ms > SILENT_MS
        ? { state: "silent", tone: "warn", steps, says: SILENT, goesOn }
        : { state: "runs", tone: "busy", steps, says: report.text, goesOn: null };
    case "INTERRUPTED":
      return { state: "interrupted", tone: "bad", steps, says: report.text, goesOn };
    case "GIVEN_UP":
      return { state: "given up", tone: "quiet", steps, says: report.text, goesOn: null };
    case "DONE":
      return { state: "done", tone: "good", steps, says: report.text, goesOn: null };
  }
}

/** Those that somebody may have to do something about, or wait for. */
export function unfinished(procedures: readonly Procedure[]): Procedure[] {
  return procedures.filter(({ report }) => !isOver(report));
}

/** What it is, for a heading. */
export function titleOf({ report }: Procedure): string {
  const name = report.job_name === "" ? (report.job ?? "a job") : report.job_name;
  return report.kind === "backfill" ? `Backfill of ${name}` : `Upgrade of ${name}`;
}

function isOver({ state }: Procedure["report"]): boolean {
  return state === "DONE" || state === "GIVEN_UP";
}

function stepState(index: number, done: number, over: boolean): StepState {
  if (index < done) return "done";
  return index === done && !over ? "now" : "left";
}

import { describe, expect, it } from "vitest";

import type { Procedure, ProcedureState } from "../api/schema";
import { SILENT_MS, shownOf, titleOf, unfinished } from "./procedures";

const NOW_MS = 1_000_000;

function procedure(state: ProcedureState, changes: Partial<Procedure["report"]> = {}): Procedure {
  return {
    report: {
      id: "b1",
      kind: "backfill",
      job_name: "orders",
      job: null,
      subject: "a day of a table",
      steps: ["stop", "compute", "replace"],
      done: 1,
      state,
      text: "stopped",
      goes_on: "unistream backfill orders",
      ...changes,
    },
    begun_ms: NOW_MS - 60_000,
    reported_ms: NOW_MS - 1_000,
  };
}

describe("a procedure", () => {
  it.each<[ProcedureState, string, string | null, string[]]>([
    ["RUNS", "runs", null, ["done", "now", "left"]],
    ["INTERRUPTED", "interrupted", "unistream backfill orders", ["done", "now", "left"]],
    ["GIVEN_UP", "given up", null, ["done", "left", "left"]],
  ])("that is %s", (state, words, goesOn, steps) => {
    const shown = shownOf(procedure(state), NOW_MS);
    expect([shown.state, shown.goesOn, shown.says]).toEqual([words, goesOn, "stopped"]);
    expect(shown.steps.map((step) => step.state)).toEqual(steps);
  });

  it("that is done has no step left", () => {
    const shown = shownOf(procedure("DONE", { done: 3 }), NOW_MS);
    expect(shown.steps.every((step) => step.state === "done")).toBe(true);
  });

  it("that says nothing more may have died, and says how to go on", () => {
    const shown = shownOf({ ...procedure("RUNS"), reported_ms: NOW_MS - SILENT_MS - 1 }, NOW_MS);
    expect([shown.state, shown.tone, shown.goesOn]).toEqual(["silent", "warn", "unistream backfill orders"]);
    expect(shown.says).toContain("may have died");
  });

  it("has no command where there is none", () => {
    expect(shownOf(procedure("INTERRUPTED", { goes_on: "" }), NOW_MS).goesOn).toBeNull();
  });

  it("is named by its job, or the id of that", () => {
    expect(titleOf(procedure("RUNS"))).toBe("Backfill of orders");
    expect(titleOf(procedure("RUNS", { kind: "upgrade", job_name: "", job: "a1" }))).toBe("Upgrade of a1");
    expect(titleOf(procedure("RUNS", { job_name: "" }))).toBe("Backfill of a job");
  });

  it("is unfinished while it runs or can go on", () => {
    const states: ProcedureState[] = ["RUNS", "INTERRUPTED", "DONE", "GIVEN_UP"];
    expect(unfinished(states.map((state) => procedure(state))).map(({ report }) => report.state)).toEqual([
      "RUNS",
      "INTERRUPTED",
    ]);
  });
});

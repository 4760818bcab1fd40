import { expect, test } from "vitest";

import type { JobFigures, JobInList, JobSummary } from "../api/schema";
import { whyOf } from "./why";

const SILENT = [
  { name: "a", seconds: 12, subtasks: 1, of: 2 },
  { name: "b", seconds: 75, subtasks: 1, of: 1 },
];

test.each<[string, Partial<JobSummary>, Partial<JobFigures> | null, string | null]>([
  ["all is well", { state: "RUNNING" }, { failure: null, silent: [] }, null],
  ["it has recovered", { state: "RUNNING" }, { failure: "E: was", silent: [] }, null],
  ["it restarts", { state: "RESTARTING" }, { failure: "E: no", silent: [] }, "E: no"],
  [
    "the system that was silent for the longest time",
    { state: "RUNNING" },
    { failure: null, silent: SILENT },
    "Source b has had no answer for 1 min 15 s.",
  ],
  ["it has failed", { state: "FAILED", failure: "E: end" }, null, "E: end"],
  ["nobody knows why", { state: "FAILED", failure: null }, null, null],
  ["it has ended well", { state: "FINISHED", failure: null }, null, null],
])("%s", (_, summary, figures, wanted) => {
  expect(whyOf({ summary, figures } as JobInList)).toBe(wanted);
});

import { expect, test } from "vitest";

import type { CheckpointsInfo, JobInfo } from "../api/schema";
import { noStateOf } from "./noState";

const SAID = "job a has no complete checkpoint or savepoint that is still kept";
const DELETED = [{ status: "completed", discarded: true }];
const KEPT = [{ status: "completed", discarded: false }];

function known(completed: number, latest: object[] = [], restored: object | null = null): CheckpointsInfo {
  return {
    ...{ completed, latest, latest_completed: null, latest_savepoint: null },
    latest_restored: restored,
  } as unknown as CheckpointsInfo;
}
const job = (state: JobInfo["state"], job_type: JobInfo["job_type"] = "STREAMING") => ({ state, job_type });

test.each([
  ["it was cancelled", job("CANCELED"), known(3, DELETED), undefined, "it was cancelled", "RETAIN_ON"],
  ["it was stopped", job("FINISHED"), known(3, DELETED), undefined, "it has finished", "stays"],
  ["it failed", job("FAILED"), known(3, DELETED), undefined, "it has failed", "DELETE_ON_CANCELLATION"],
  ["it ended too early", job("CANCELED"), known(0), undefined, "before its first checkpoint", "Exceptions"],
  ["it runs", job("RUNNING"), known(0), undefined, "no checkpoint is complete", "by itself"],
  ["it is a batch", job("FINISHED", "BATCH"), known(0), undefined, "BATCH job takes no", ""],
  ["one that was chosen is gone", job("RUNNING"), known(9, KEPT), 2, "Snapshot 2 is not kept", "Choose"],
  ["one was there a moment ago", job("RUNNING"), known(9, KEPT), undefined, SAID, ""],
  ["it began from one", job("RUNNING"), known(0, [], { path: "x" }), undefined, SAID, ""],
  ["nobody knows of its snapshots", job("CANCELED"), undefined, undefined, SAID, ""],
] as const)("%s", (_, info, snapshots, wanted, what, then) => {
  const found = noStateOf(info, snapshots, wanted, SAID);
  expect(found.what).toContain(what);
  expect(found.then).toContain(then);
});

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { checkpointConfigQuery, keptQuery, useNowMs } from "../../../api/queries";
import type { JobInfo } from "../../../api/schema";
import { type Action, type Subject, actionsOf } from "../../../model/actions";
import { type Wanted, begun } from "../../../model/operations";
import { isOver } from "../../../model/states";
import { NoChanges } from "../../../parts/NoChanges";
import { newId, store, useOperations } from "../../../parts/operations";
import { useMay } from "../../../parts/useMay";
import { ActionDialog } from "./ActionDialog";
import { OperationsOfJob } from "./OperationsOfJob";
import "./actions.css";

const BUTTONS: Record<Action, string> = {
  savepoint: "Savepoint",
  rescale: "Rescale",
  upgrade: "Upgrade",
  stop: "Stop",
  drain: "Drain",
  cancel: "Cancel",
  start: "Start again",
};

/** What can be done to the job, and how what was asked for goes on. */
export function JobActions({ info }: { info: JobInfo }) {
  const may = useMay("operate");
  const [open, setOpen] = useState<Action | null>(null);
  const subject = useSubject(info);
  const begin = (action: Action, wanted: Wanted) => {
    store(begun({ id: newId(), job: info.job, action, startedMs: Date.now(), wanted }));
    setOpen(null);
  };
  return (
    <>
      {may.is === "yes" && (
        <div className="actions" role="group" aria-label="Actions">
          {actionsOf(subject).map((action) => (
            <button
              key={action}
              type="button"
              className={action === "cancel" ? "tone-bad" : ""}
              onClick={() => {
                setOpen(action);
              }}
            >
              {BUTTONS[action]}
            </button>
          ))}
        </div>
      )}
      <NoChanges may={may} />
      <OperationsOfJob
        job={info}
        restart={
          may.is === "yes" && actionsOf(subject).includes("start")
            ? () => {
                setOpen("start");
              }
            : null
        }
      />
      {open !== null && may.is === "yes" && (
        <ActionDialog
          action={open}
          subject={subject}
          job={info}
          begin={begin}
          close={() => {
            setOpen(null);
          }}
        />
      )}
    </>
  );
}

function useSubject(info: JobInfo): Subject {
  const over = isOver(info.state);
  const checkpoints = useQuery({
    ...checkpointConfigQuery(info.job),
    enabled: info.incomplete === "" && info.job_type !== "BATCH",
  });
  const kept = useQuery({ ...keptQuery(info.job), enabled: over });
  const mine = useOperations().filter(({ job, step }) => job === info.job && step !== "over");
  return {
    job: info,
    checkpoints: checkpoints.data ?? null,
    kept: kept.data ?? false,
    underWay: mine.map(({ action }) => action),
    nowMs: useNowMs(),
  };
}

import { type SyntheticEvent, useState } from "react";

import { Refused, Unreachable } from "../../api/client";
import { drainWorker } from "../../api/clusterQueries";
import type { WorkerShown } from "../../api/schema";
import { Dialog } from "../../parts/Dialog";
import { Notice } from "../../parts/Notice";
import { useLeave } from "../../parts/useLeave";

interface Props {
  readonly shown: WorkerShown;
  readonly closed: () => void;
}

/** Asks once. */
export function DrainDialog({ shown, closed }: Props) {
  return (
    <Dialog title="Drain a worker" closed={closed}>
      <Asked shown={shown} />
    </Dialog>
  );
}

function Asked({ shown }: Pick<Props, "shown">) {
  const leave = useLeave();
  const [waits, setWaits] = useState(false);
  const [isSent, setIsSent] = useState(false);
  const [wrong, setWrong] = useState<string | null>(null);
  const drain = async () => {
    setIsSent(true);
    setWrong(null);
    try {
      await drainWorker(shown.worker.id, waits);
      leave();
    } catch (error) {
      setWrong(whyNot(error));
    }
    setIsSent(false);
  };
  const submit = (event: SyntheticEvent) => {
    event.preventDefault();
    if (!isSent) void drain();
  };
  const jobs = new Set(shown.slots.map(({ job }) => job)).size;
  return (
    <form onSubmit={submit}>
      <p>
        <code>{shown.worker.id}</code> on <bdi>{shown.worker.host ?? "a host that is not known"}</bdi>
      </p>
      <p>
        It gets no more tasks. {jobs === 1 ? "1 job" : `${jobs} jobs`} with slots there: a checkpoint is
        taken, and its tasks start again elsewhere from it. No row is lost or doubled. Tasks of a BATCH job
        end where they run. Then the worker ends.
      </p>
      <label>
        <input
          type="checkbox"
          checked={waits}
          onChange={(event) => {
            setWaits(event.target.checked);
          }}
        />{" "}
        If other workers have too few slots, wait for them
      </label>
      {wrong !== null && <Notice tone="bad">{wrong}</Notice>}
      <div className="confirm">
        <button type="button" onClick={leave}>
          Leave it
        </button>
        <button type="submit" className="primary ends" disabled={isSent}>
          {isSent ? "Asking for it…" : "Drain it"}
        </button>
      </div>
    </form>
  );
}

function whyNot(error: unknown): string {
  if (error instanceof Refused) return error.message;
  if (error instanceof Unreachable)
    return `${error.message} It may be drained all the same: its row says it.`;
  throw error;
}

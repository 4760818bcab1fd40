import { useEffect } from "react";

import {
  askCancel,
  askRescale,
  askSavepoint,
  askStop,
  jobOf,
  keep,
  replayOf,
  rescaleOf,
  savepointOf,
  start,
  stateOf,
} from "../api/actions";
import { Refused, Unreachable } from "../api/client";
import { type Operation, type Told, told } from "../model/operations";
import { replayTold } from "../model/replays";
import { waitsFor } from "../model/actions";
import { isOver } from "../model/states";
import { operation, store, useOperations } from "../parts/operations";
import { useMay } from "../parts/useMay";
import { upgradeStep } from "./upgrade";

const PAUSE_MS = 1_000;

/**
 * Carries on with what this browser has asked for, whatever page is shown: as soon as somebody is signed in who may, since a
 * refusal would end it.
 */
export function Operations() {
  const may = useMay("operate");
  const open = useOperations().filter(({ step }) => step !== "over");
  return may.is === "yes" && open.map(({ id }) => <Carried key={id} id={id} />);
}

function Carried({ id }: { id: string }) {
  useEffect(() => {
    const end = new AbortController();
    void carryOn(id, end.signal);
    return () => {
      end.abort();
    };
  }, [id]);
  return null;
}

/** Until it is over, or nobody wants to know. */
async function carryOn(id: string, signal: AbortSignal) {
  for (;;) {
    const before = operation(id);
    if (before === undefined || before.step === "over") return;
    const answer = await answerTo(before, signal);
    if (answer === null || operation(id) === undefined) return;
    const after = told(before, answer);
    store(after);
    if (after.step === before.step) await new Promise((done) => setTimeout(done, PAUSE_MS));
    if (signal.aborted) return;
  }
}

/** What came of the next request of an operation; null: it was given up. */
async function answerTo(wanted: Operation, signal: AbortSignal): Promise<Told | null> {
  try {
    return await request(wanted, signal);
  } catch (error) {
    if (signal.aborted) return null;
    if (error instanceof Refused) return { is: "refused", status: error.status, why: error.message };
    if (error instanceof Unreachable) return { is: "away", why: error.message };
    throw error;
  }
}

async function request(operation: Operation, signal: AbortSignal): Promise<Told> {
  const { step, action, job, id, wanted } = operation;
  const directory = wanted.directory ?? null;
  if (step === "keep") {
    await keep(job, signal);
    return { is: "accepted" };
  }
  if (step === "watch") return watched(action, job, id, signal);
  if (step !== "ask") return upgradeStep(operation, signal);
  if (action !== "cancel" && action !== "start" && action !== "replay") {
    // All its tasks ran when somebody asked; since then it may have restarted, or another JobManager starts it again.
    const waits = waitsFor(await jobOf(job, signal));
    if (waits !== null) return { is: "away", why: waits };
  }
  switch (action) {
    case "savepoint":
      await askSavepoint(job, id, directory, signal);
      break;
    case "upgrade":
    case "stop":
    case "drain":
      await askStop(job, id, { directory, drain: action === "drain" }, signal);
      break;
    case "rescale":
      await askRescale(job, id, wanted.parallelism ?? {}, signal);
      break;
    case "cancel":
      await askCancel(job, signal);
      break;
    case "start":
      return { is: "done", newJob: await start(job, id, wanted.savepoint ?? "", signal) };
    case "replay": // it was asked for where it was corrected
      break;
  }
  return { is: "accepted" };
}

async function watched(
  action: Operation["action"],
  job: string,
  id: string,
  signal: AbortSignal,
): Promise<Told> {
  switch (action) {
    case "savepoint":
    case "upgrade":
    case "stop":
    case "drain": {
      const made = await savepointOf(job, id, signal);
      if (made === null) return { is: "running" };
      const resumable = made["resumable-location"];
      return { is: "done", location: made.location, ...(resumable === undefined ? {} : { resumable }) };
    }
    case "rescale": {
      const parallelism = await rescaleOf(job, id, signal);
      return parallelism === null ? { is: "running" } : { is: "done", parallelism };
    }
    case "cancel":
    case "start": {
      const state = await stateOf(job, signal);
      return isOver(state) ? { is: "done", state } : { is: "running" };
    }
    case "replay":
      return replayTold(await replayOf(job, id, signal));
  }
}

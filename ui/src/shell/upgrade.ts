import { type Changes, askCancel, askCheckpoint, check, jobOf, start } from "../api/actions";
import { Refused } from "../api/client";
import type { Operation, Told } from "../model/operations";
import { proofOf, requestIdOf } from "../model/upgrades";

/** The requests of an upgrade that no other operation has. */
export async function upgradeStep(operation: Operation, signal: AbortSignal): Promise<Told> {
  const { step, job, id, wanted, made } = operation;
  const changes: Changes = { config: { ...wanted.config }, parallelism: { ...wanted.parallelism } };
  const savepoint = made?.savepoint ?? "";
  switch (step) {
    case "check":
      await check(job, changes, signal);
      return { is: "accepted" };
    case "start":
      return { is: "done", newJob: await start(job, requestIdOf(id, "start"), savepoint, signal, changes) };
    case "back":
      return { is: "done", newJob: await start(job, requestIdOf(id, "back"), savepoint, signal) };
    case "prove":
      return proved(made?.newJob ?? "", id, signal);
    case "keep":
    case "ask":
    case "watch":
    case "over":
      throw new Error(`an upgrade has no step of its own for ${step}`);
  }
}

async function proved(newJob: string, id: string, signal: AbortSignal): Promise<Told> {
  const proof = proofOf(await jobOf(newJob, signal));
  switch (proof.is) {
    case "proven":
      return { is: "done" };
    case "failed":
      return proof;
    case "has to end":
      await unlessRefused(askCancel(newJob, signal));
      return { is: "running" };
    case "may take a checkpoint":
      await unlessRefused(askCheckpoint(newJob, id, signal));
      return { is: "running" };
    case "waits":
      return { is: "running" };
  }
}

/** It takes none just now, or has ended: the next look at the job says more. */
async function unlessRefused(asked: Promise<void>): Promise<void> {
  try {
    await asked;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
  }
}

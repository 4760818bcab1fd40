import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { checkpointsQuery } from "../../../api/queries";
import type { JobInfo } from "../../../api/schema";
import { totalsOf } from "../../../model/checkpoints";
import type { Operation } from "../../../model/operations";
import { type Saying, sayingOf } from "../../../model/outcomes";
import { stepsOf } from "../../../model/upgrades";
import { Copyable } from "../../../parts/Copyable";
import { Time } from "../../../parts/Time";
import { dismiss, useOperations } from "../../../parts/operations";

interface Props {
  readonly job: JobInfo;
  /** Opens the dialog that starts the job again; null: it cannot be. */
  readonly restart: (() => void) | null;
}

/** What was asked for from this browser, each with how it goes, or has gone, and what is sensible next. */
export function OperationsOfJob({ job, restart }: Props) {
  const mine = useOperations().filter((one) => one.job === job.job);
  if (mine.length === 0) return null;
  return (
    <ul className="operations" aria-label="What was asked for">
      {mine.map((one) => (
        <li key={one.id}>
          {one.step === "watch" && isSnapshot(one) ? (
            <WithProgress operation={one} />
          ) : (
            <Said operation={one} saying={sayingOf(one)} restart={restart} />
          )}
        </li>
      ))}
    </ul>
  );
}

function isSnapshot({ action }: Operation): boolean {
  return action === "savepoint" || action === "upgrade" || action === "stop" || action === "drain";
}

/** Nobody else goes on with it; of what has stopped a job, that would be the end. */
function mayGiveUp({ step }: Operation): boolean {
  return step !== "watch" && step !== "start" && step !== "back";
}

/** How many subtasks have acknowledged the newest snapshot that is being taken. */
function WithProgress({ operation }: { operation: Operation }) {
  const { data } = useQuery(checkpointsQuery(operation.job));
  const figures = data?.latest.find(({ status, kind }) => status === "in progress" && kind !== "checkpoint");
  const totals = figures === undefined ? null : totalsOf(figures);
  const progress =
    totals === null ? null : `${totals.acked} of ${totals.expected} subtasks have acknowledged it.`;
  return <Said operation={operation} saying={sayingOf(operation, progress)} restart={null} />;
}

function Steps({ operation }: { operation: Operation }) {
  return (
    <ol className="steps" aria-label="Steps">
      {stepsOf(operation).map(({ text, state }) => (
        <li key={text} className={`step-${state}`} aria-current={state === "now" ? "step" : undefined}>
          {text}
          {state !== "now" && <span className="quiet"> · {state}</span>}
        </li>
      ))}
    </ol>
  );
}

interface SaidProps {
  readonly operation: Operation;
  readonly saying: Saying;
  readonly restart: (() => void) | null;
}

function Said({ operation, saying, restart }: SaidProps) {
  const isOver = operation.step === "over";
  const ends = saying.places.length > 0 && (operation.action === "stop" || operation.action === "drain");
  return (
    <section className={`operation tone-${saying.tone}`}>
      <div role={saying.tone === "bad" ? "alert" : "status"}>
        <strong>{saying.title}</strong> <span className="quiet">·</span> <Time ms={operation.startedMs} />
        <p>{saying.sentence}</p>
      </div>
      {operation.action === "upgrade" && <Steps operation={operation} />}
      {saying.places.length > 0 && (
        <dl className="places">
          {saying.places.map(({ what, path }) => (
            <div key={path}>
              <dt>{what}</dt>
              <dd>
                <Copyable text={path} />
              </dd>
            </div>
          ))}
          {saying.command !== null && (
            <div>
              <dt>In a terminal</dt>
              <dd>
                <Copyable text={saying.command} />
              </dd>
            </div>
          )}
        </dl>
      )}
      <div className="next">
        {saying.newJob !== null && (
          <Link to="/jobs/$job" params={{ job: saying.newJob }}>
            {operation.action === "replay" ? "To the job of the replay" : "To the new job"}
          </Link>
        )}
        {ends && restart !== null && (
          <button type="button" onClick={restart}>
            Start again from it
          </button>
        )}
        {mayGiveUp(operation) && (
          <button
            type="button"
            aria-label={`${isOver ? "Hide" : "Give up"}: ${saying.title}`}
            onClick={() => {
              dismiss(operation.id);
            }}
          >
            {isOver ? "Hide" : "Give up"}
          </button>
        )}
      </div>
    </section>
  );
}

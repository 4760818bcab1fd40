import { useQuery } from "@tanstack/react-query";
import { useNavigate, useParams, useSearch } from "@tanstack/react-router";

import { checkpointsQuery } from "../../api/queries";
import type { CheckpointFigures, CheckpointsInfo } from "../../api/schema";
import { bytes, count } from "../../format/numbers";
import { duration } from "../../format/times";
import { type Phase, type SubtaskPhases, phasesOf, totalsOf } from "../../model/checkpoints";
import { Answered } from "../../parts/Answered";
import { Copyable } from "../../parts/Copyable";
import { Time } from "../../parts/Time";
import { Scrolls } from "../../parts/Scrolls";

const STRIP = 60;
const SUBTASKS = 50;

/** The last sixty as a strip, and of the chosen one which subtask was slow, and in which phase. */
export function CheckpointsTab() {
  const { job } = useParams({ from: "/jobs/$job" });
  const query = useQuery(checkpointsQuery(job));
  return <Answered query={query}>{(info) => <Checkpoints info={info} />}</Answered>;
}

function Checkpoints({ info }: { info: CheckpointsInfo }) {
  const { id } = useSearch({ from: "/jobs/$job/checkpoints" });
  const navigate = useNavigate({ from: "/jobs/$job/checkpoints" });
  const shown = info.latest.slice(0, STRIP).reverse();
  if (shown.length === 0) {
    return <p className="empty">There is no checkpoint yet. A job without an interval takes none.</p>;
  }
  const chosen = shown.find(({ checkpoint_id }) => checkpoint_id === id) ?? shown.at(-1);
  const slowest = Math.max(...shown.map(({ duration_ms }) => duration_ms), 1);
  return (
    <>
      <p>
        {count(info.completed)} complete, {count(info.failed)} failed, {count(info.in_progress)} in progress.
      </p>
      <ol className="strip" aria-label={`The last ${shown.length} checkpoints`}>
        {shown.map((one) => (
          <li key={one.checkpoint_id}>
            <button
              type="button"
              className={`bar-${one.status.replace(" ", "-")}`}
              aria-pressed={one === chosen}
              aria-label={`Checkpoint ${one.checkpoint_id}, ${one.status}, ${duration(one.duration_ms)}`}
              title={`${one.checkpoint_id} · ${one.status} · ${duration(one.duration_ms)}`}
              onClick={() => {
                void navigate({ search: { id: one.checkpoint_id }, replace: true });
              }}
            >
              <span style={{ height: `${Math.max(6, (one.duration_ms / slowest) * 100)}%` }} />
            </button>
          </li>
        ))}
      </ol>
      {id !== undefined && (
        <button
          type="button"
          onClick={() => {
            void navigate({ search: {}, replace: true });
          }}
        >
          Follow the newest
        </button>
      )}
      {chosen !== undefined && <Chosen figures={chosen} />}
    </>
  );
}

function Chosen({ figures }: { figures: CheckpointFigures }) {
  const phases = phasesOf(figures);
  const totals = totalsOf(figures);
  return (
    <section className="card">
      <h2>
        {figures.kind.toLowerCase().replaceAll("_", " ")} {figures.checkpoint_id}: {figures.status}
      </h2>
      <p className="quiet">
        <Time ms={figures.timestamp_ms} /> · {duration(figures.duration_ms)} · {bytes(totals.stateBytes)} of
        state · {totals.acked} of {totals.expected} subtasks have acknowledged
      </p>
      {figures.reason !== null && figures.reason !== "" && <p className="why">{figures.reason}</p>}
      {figures.path !== null && <Copyable text={figures.path} />}
      {phases.length === 0 ? (
        <p className="quiet">No subtask has acknowledged it, or what each did is kept of newer ones only.</p>
      ) : (
        <Subtasks phases={phases} />
      )}
    </section>
  );
}

/** What each did, phase after phase, the slowest first. */
function Subtasks({ phases }: { phases: readonly SubtaskPhases[] }) {
  const slowest = Math.max(...phases.map(({ wholeMs }) => wholeMs), 1);
  return (
    <>
      <PhaseLegend />
      <Scrolls label="Subtasks of the checkpoint">
        <table className="phases">
          <thead>
            <tr>
              <th scope="col">Subtask, the slowest first</th>
              <th scope="col">Phases</th>
              <th scope="col">All</th>
              <th scope="col">Written</th>
            </tr>
          </thead>
          <tbody>
            {phases.slice(0, SUBTASKS).map((one) => (
              <tr key={`${one.vertex} ${one.index}`}>
                <th scope="row">
                  <bdi>{one.vertex}</bdi> ({one.index + 1})
                </th>
                <td>
                  <Stacked phases={one.phases} slowest={slowest} />
                </td>
                <td className="number">{duration(one.wholeMs)}</td>
                <td className="number">{bytes(one.newBytes)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scrolls>
      {phases.length > SUBTASKS && (
        <p className="quiet">{count(phases.length - SUBTASKS)} quicker subtasks are not shown.</p>
      )}
    </>
  );
}

const PHASES: readonly (readonly [Phase["name"], string])[] = [
  ["wait", "waits for the barrier"],
  ["alignment", "waits for the barriers of its other inputs"],
  ["sync", "takes its state, and processes no row"],
  ["async", "writes it, beside its work"],
];

/** What the colours are. */
function PhaseLegend() {
  return (
    <ul className="legend">
      {PHASES.map(([name, what]) => (
        <li key={name}>
          <span className={`key phase-${name}`} aria-hidden="true" /> {name}: {what}
        </li>
      ))}
    </ul>
  );
}

function Stacked({ phases, slowest }: { phases: readonly Phase[]; slowest: number }) {
  const text = phases.map(({ name, ms }) => `${name} ${duration(ms)}`).join(", ");
  return (
    <span className="stacked" role="img" aria-label={text} title={text}>
      {phases.map(({ name, ms }) => (
        <span key={name} className={`phase-${name}`} style={{ width: `${(ms / slowest) * 100}%` }} />
      ))}
    </span>
  );
}

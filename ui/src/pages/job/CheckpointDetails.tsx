import type { CheckpointFigures } from "../../api/schema";
import type { Bar } from "../../model/checkpointStrip";
import { type Phase, type SubtaskPhases, missingOf, phasesOf, totalsOf } from "../../model/checkpoints";
import { bytes, count } from "../../format/numbers";
import { duration } from "../../format/times";
import { Copyable } from "../../parts/Copyable";
import { Scrolls } from "../../parts/Scrolls";
import { Time } from "../../parts/Time";

const SUBTASKS = 50;

/** One snapshot: what is known of it, and which subtask was slow, in which phase. */
export function CheckpointDetails({ bar }: { bar: Bar }) {
  const { figures } = bar;
  const phases = figures === null ? [] : phasesOf(figures);
  const totals = figures === null ? null : totalsOf(figures);
  return (
    <section className="card">
      <h2>
        {bar.kind.toLowerCase().replaceAll("_", " ")} {bar.id}: {bar.status}
      </h2>
      <p className="quiet">
        <Time ms={bar.startedMs} /> · {duration(bar.durationMs)} · {bytes(bar.stateBytes)} of state
        {totals !== null && (
          <>
            , {bytes(totals.newBytes)} of it written now · {totals.acked} of {totals.expected} subtasks have
            acknowledged
          </>
        )}
      </p>
      {bar.reason !== null && bar.reason !== "" && <p className="why">{bar.reason}</p>}
      {bar.path !== null && <Copyable text={bar.path} />}
      {figures !== null && bar.status !== "completed" && <Missing figures={figures} />}
      {phases.length === 0 ? (
        <p className="quiet">
          No subtask has acknowledged it, or what each did is kept of newer ones only (
          <code>web.checkpoints.history</code>).
        </p>
      ) : (
        <Subtasks phases={phases} />
      )}
    </section>
  );
}

/** Those for which it waits, or waited in vain: the slow ones are among them, and what reads their rows. */
function Missing({ figures }: { figures: CheckpointFigures }) {
  const missing = missingOf(figures);
  if (missing.length === 0) return null;
  const head =
    figures.status === "failed" ? "These had not acknowledged it" : "These have not acknowledged it yet";
  return (
    <>
      <h3>{head}, in the order of the rows: look at the first</h3>
      <ul>
        {missing.map(({ vertex, indexes }) => (
          <li key={vertex} className={figures.status === "failed" ? "why" : "quiet"}>
            <bdi>{vertex}</bdi> ({indexes.slice(0, SUBTASKS).join(", ")}
            {indexes.length > SUBTASKS && ", …"})
          </li>
        ))}
      </ul>
    </>
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
              <th scope="col" className="number">
                All
              </th>
              <th scope="col" className="number">
                Written
              </th>
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

import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";

import { verticesQuery } from "../../api/queries";
import type { InputLine, JobInfo, OperatorLine, VertexLine } from "../../api/schema";
import { count, percent } from "../../format/numbers";
import { duration, since } from "../../format/times";
import { placeOf, subtasksOf, workerOf } from "../../model/chain";
import { toneOfTask } from "../../model/states";
import { pressure } from "../../model/vertices";
import { Answered } from "../../parts/Answered";
import { Badge } from "../../parts/Badge";
import { Copyable } from "../../parts/Copyable";
import { Scrolls } from "../../parts/Scrolls";

const SHOWN = 200;
const MS_PER_S = 1_000;

interface Props {
  readonly id: string;
  readonly info: JobInfo;
  readonly nowMs: number | null;
}

/** One vertex: its chain with the lines of the program, what it reads, and its subtasks. */
export function VertexPanel({ id, info, nowMs }: Props) {
  const { job } = useParams({ from: "/jobs/$job" });
  const query = useQuery(verticesQuery(job));
  return (
    <section className="card" aria-label="Vertex">
      <Answered query={query}>
        {({ vertices }) => {
          const vertex = vertices.find((one) => one.id === id);
          return vertex === undefined ? (
            <p className="quiet">This job has no such vertex.</p>
          ) : (
            <Chain vertex={vertex} all={vertices} />
          );
        }}
      </Answered>
      <Subtasks id={id} info={info} nowMs={nowMs} />
    </section>
  );
}

function Chain({ vertex, all }: { vertex: VertexLine; all: readonly VertexLine[] }) {
  const { job } = useParams({ from: "/jobs/$job" });
  const together = all.filter(({ region, id }) => region === vertex.region && id !== vertex.id);
  return (
    <>
      <div className="title">
        <h2>
          <bdi>{vertex.name}</bdi>
        </h2>
        <Link to="/jobs/$job" params={{ job }} search={{}}>
          close
        </Link>
      </div>
      <p className="quiet">
        {count(vertex.parallelism)} of at most {count(vertex.max_parallelism)} subtasks, slot sharing group{" "}
        <bdi>{vertex.slot_sharing_group}</bdi>.{" "}
        {together.length === 0
          ? "It restarts alone."
          : `It restarts together with ${together.map(({ name }) => name).join(", ")}.`}
        {vertex.offloaded && " It is of the bounded part, which ends before the stream reads it."}
      </p>
      <ol className="chain">
        {vertex.operators.map((operator) => (
          <Operator key={operator.uid} operator={operator} />
        ))}
      </ol>
      {vertex.inputs.map((input) => (
        <p key={`${input.source} ${input.input_index}`} className="quiet">
          <Exchange input={input} all={all} />
        </p>
      ))}
    </>
  );
}

function Operator({ operator }: { operator: OperatorLine }) {
  const place = placeOf(operator.declared_at);
  return (
    <li>
      <strong>
        <bdi>{operator.name}</bdi>
      </strong>{" "}
      {place !== null && (
        <>
          at <Copyable text={place.whole} shown={place.short} />{" "}
        </>
      )}
      <span className="quiet">
        {operator.has_own_uid ? (
          <>
            uid <bdi>{operator.uid}</bdi>
          </>
        ) : (
          "no uid of its own"
        )}
        {operator.stateful &&
          (operator.has_own_uid ? ", with state" : ", with state that a changed graph loses")}
      </span>
      {operator.reads.map((uri) => (
        <div key={uri}>
          reads <Copyable text={uri} />
        </div>
      ))}
      {operator.writes.map((uri) => (
        <div key={uri}>
          writes <Copyable text={uri} />
        </div>
      ))}
    </li>
  );
}

function Exchange({ input, all }: { input: InputLine; all: readonly VertexLine[] }) {
  const source = all.find(({ id }) => id === input.source);
  const keys = input.key_columns.length === 0 ? "" : ` of ${input.key_columns.join(", ")}`;
  return (
    <>
      Reads <bdi>{source?.name ?? input.source}</bdi> by {input.ship}
      {keys}
      {input.partition === "BLOCKING" && ", when all of it is stored"}.
    </>
  );
}

function Subtasks({ id, info, nowMs }: Props) {
  const found = subtasksOf(info, id);
  return (
    <Scrolls label="Subtasks">
      <table>
        <thead>
          <tr>
            <th scope="col">Subtask</th>
            <th scope="col">State</th>
            <th scope="col" className="number">
              Attempt
            </th>
            <th scope="col">Worker</th>
            <th scope="col" className="number">
              Rows in
            </th>
            <th scope="col" className="number">
              Rows out
            </th>
            <th scope="col" className="number">
              Busy
            </th>
            <th scope="col" className="number">
              Held back
            </th>
            <th scope="col" className="number">
              Watermark lag
            </th>
          </tr>
        </thead>
        <tbody>
          {found.slice(0, SHOWN).map(({ index, state, attempt, task_manager, metrics }) => (
            <tr key={index}>
              <th scope="row">{index}</th>
              <td>
                <Badge tone={toneOfTask(state)}>{state}</Badge>
              </td>
              <td className="number">{attempt}</td>
              <td>
                <bdi>{workerOf(info.task_managers, task_manager) ?? "–"}</bdi>
              </td>
              <td className="number">{count(metrics.records_in)}</td>
              <td className="number">{count(metrics.records_out)}</td>
              <td className="number">{percent(metrics.busy_per_s / MS_PER_S)}</td>
              <td className={`number pressure-${pressure(metrics.backpressured_per_s / MS_PER_S)}`}>
                {percent(metrics.backpressured_per_s / MS_PER_S)}
              </td>
              <td className="number">{duration(since(metrics.watermark, nowMs))}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {found.length > SHOWN && (
        <p className="quiet">
          Those in trouble and the busiest: {SHOWN} of {count(found.length)}.
        </p>
      )}
    </Scrolls>
  );
}

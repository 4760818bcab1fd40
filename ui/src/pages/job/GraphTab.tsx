import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { Suspense, lazy } from "react";

import { jobQuery, planQuery, serverMsOf, useHoldsUntilMs, useNowMs } from "../../api/queries";
import type { JobInfo, Plan } from "../../api/schema";
import { count, percent, rate } from "../../format/numbers";
import { duration, since } from "../../format/times";
import { rateOf } from "../../model/rates";
import { type Vertex, bottlenecksOf, pressure, verticesOf } from "../../model/vertices";
import { Answered } from "../../parts/Answered";
import { Scrolls } from "../../parts/Scrolls";
import { useSamples } from "../../parts/samples";
import { Bottlenecks } from "./Bottlenecks";
import { VertexPanel } from "./VertexPanel";

/** The graph library and its layout are loaded when a graph is looked at. */
const JobGraph = lazy(async () => ({ default: (await import("./JobGraph")).JobGraph }));

/** What runs where, how much flows, and what the others wait for. */
export function GraphTab() {
  const { job } = useParams({ from: "/jobs/$job" });
  const info = useQuery(jobQuery(job));
  const plan = useQuery(planQuery(job));
  return (
    <Answered query={plan}>
      {(known) => (
        <Answered query={info}>
          {(now) => <Vertices plan={known} info={now} atMs={serverMsOf(info.dataUpdatedAt)} />}
        </Answered>
      )}
    </Answered>
  );
}

function Vertices({ plan, info, atMs }: { plan: Plan; info: JobInfo; atMs: number }) {
  const nowMs = useNowMs();
  const chosen = useSearch({ from: "/jobs/$job/" }).vertex ?? null;
  const navigate = useNavigate({ from: "/jobs/$job" });
  const vertices = verticesOf(plan, info);
  const runs = info.ended_ms === null;
  const counters = vertices.flatMap((vertex): [string, number][] => [
    [`${vertex.id} in`, vertex.recordsIn],
    [`${vertex.id} out`, vertex.recordsOut],
  ]);
  const samples = useSamples(new Map(counters), useHoldsUntilMs(`job/${info.job}`, atMs));
  const rates = new Map([...samples].map(([name, kept]) => [name, runs ? rateOf(kept) : null]));
  const bottlenecks = runs ? bottlenecksOf(vertices) : [];
  return (
    <>
      <Bottlenecks found={bottlenecks} job={info.job} />
      <Suspense fallback={<div className="graph skeleton" role="status" aria-label="Loading" />}>
        <JobGraph
          vertices={vertices}
          rates={rates}
          bottleneck={bottlenecks[0]?.vertex.id ?? null}
          chosen={chosen}
          choose={(vertex) => void navigate({ search: { vertex } })}
        />
      </Suspense>
      {chosen !== null && <VertexPanel id={chosen} info={info} nowMs={nowMs} />}
      <Scrolls label="Vertices">
        <table>
          <thead>
            <tr>
              <th scope="col">Vertex</th>
              <th scope="col">Subtasks</th>
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
              <th scope="col" className="number">
                Skew
              </th>
            </tr>
          </thead>
          <tbody>
            {vertices.map((vertex) => (
              <Row key={vertex.id} vertex={vertex} rates={rates} nowMs={nowMs} runs={runs} />
            ))}
          </tbody>
        </table>
      </Scrolls>
    </>
  );
}

interface RowProps {
  readonly vertex: Vertex;
  readonly rates: ReadonlyMap<string, number | null>;
  readonly nowMs: number | null;
  readonly runs: boolean;
}

function Row({ vertex, rates, nowMs, runs }: RowProps) {
  const states = [...vertex.states].map(([state, number]) => `${number} ${state.toLowerCase()}`);
  return (
    <tr>
      <th scope="row">
        <Link from="/jobs/$job" to="/jobs/$job" search={{ vertex: vertex.id }} resetScroll={false}>
          <bdi>{vertex.name}</bdi>
        </Link>
      </th>
      <td>
        {count(vertex.parallelism)} <span className="quiet">{states.join(", ")}</span>
      </td>
      <td className="number">
        {count(vertex.recordsIn)} <span className="quiet">{rate(rates.get(`${vertex.id} in`))}</span>
      </td>
      <td className="number">
        {count(vertex.recordsOut)} <span className="quiet">{rate(rates.get(`${vertex.id} out`))}</span>
      </td>
      <td className="number">{percent(runs ? vertex.busy : null)}</td>
      <td className={`number pressure-${runs ? pressure(vertex.heldBack) : "ok"}`}>
        {percent(runs ? vertex.heldBack : null)}
      </td>
      <td className="number">{duration(runs ? since(vertex.watermarkMs, nowMs) : null)}</td>
      <td className="number">{vertex.skew === null ? "–" : `${vertex.skew.toFixed(1)} ×`}</td>
    </tr>
  );
}

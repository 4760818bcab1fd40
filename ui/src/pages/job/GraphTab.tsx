import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { Suspense, lazy, memo, useCallback, useMemo } from "react";

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
  const choose = useCallback((vertex: string) => void navigate({ search: { vertex } }), [navigate]);
  const vertices = useMemo(() => verticesOf(plan, info), [plan, info]);
  const runs = info.ended_ms === null;
  const counters = vertices.flatMap((vertex): [string, number | null][] => [
    [`${vertex.id} in`, vertex.recordsIn],
    [`${vertex.id} out`, vertex.recordsOut],
  ]);
  const samples = useSamples(new Map(counters), useHoldsUntilMs(`job/${info.job}`, atMs));
  const rates = useMemo(
    () => new Map([...samples].map(([name, kept]) => [name, runs ? rateOf(kept) : null])),
    [samples, runs],
  );
  const bottlenecks = runs ? bottlenecksOf(vertices) : [];
  return (
    <>
      <Bottlenecks found={bottlenecks} info={info} />
      <Suspense fallback={<div className="graph skeleton" role="status" aria-label="Loading" />}>
        <JobGraph
          vertices={vertices}
          rates={rates}
          bottleneck={bottlenecks[0]?.vertex.id ?? null}
          chosen={chosen}
          choose={choose}
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
              <Row
                key={vertex.id}
                vertex={vertex}
                reads={rate(rates.get(`${vertex.id} in`))}
                writes={rate(rates.get(`${vertex.id} out`))}
                lag={duration(runs ? since(vertex.watermarkMs, nowMs) : null)}
                runs={runs}
              />
            ))}
          </tbody>
        </table>
      </Scrolls>
    </>
  );
}

interface RowProps {
  readonly vertex: Vertex;
  readonly reads: string;
  readonly writes: string;
  readonly lag: string;
  readonly runs: boolean;
}

/** Remembered: of many vertices few change in a second, and the time does. */
const Row = memo(function Row({ vertex, reads, writes, lag, runs }: RowProps) {
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
        {count(vertex.recordsIn)} <span className="quiet">{reads}</span>
      </td>
      <td className="number">
        {count(vertex.recordsOut)} <span className="quiet">{writes}</span>
      </td>
      <td className="number">{percent(runs ? vertex.busy : null)}</td>
      <td className={`number pressure-${runs ? pressure(vertex.heldBack) : "ok"}`}>
        {percent(runs ? vertex.heldBack : null)}
      </td>
      <td className="number">{lag}</td>
      <td className="number">{vertex.skew === null ? "–" : `${vertex.skew.toFixed(1)} ×`}</td>
    </tr>
  );
});

import { useQuery } from "@tanstack/react-query";

import { runsQuery, useOverview } from "../../api/queries";
import { runsOf } from "../../model/runs";
import { Copyable } from "../../parts/Copyable";
import { Time } from "../../parts/Time";

/** The runs of Dagster that have started this job or watch it, the newest first. Nothing, if there is none. */
export function DagsterRuns({ job }: { job: string }) {
  const { data } = useQuery(runsQuery(job));
  const base = useOverview().data?.dagster_url ?? null;
  const runs = runsOf(data ?? []);
  if (runs.length === 0) return null;
  return (
    <p className="quiet">
      Dagster:{" "}
      {runs.map(({ run, step, attachedMs, watches }, index) => (
        <span key={`${run} ${step}`}>
          {index > 0 && "; "}
          step <bdi>{step}</bdi> of run{" "}
          {base === null ? (
            <Copyable text={run} shown={run.slice(0, 8)} />
          ) : (
            <a href={`${base}/runs/${encodeURIComponent(run)}`}>{run.slice(0, 8)}</a>
          )}{" "}
          {watches ? "watches it since" : "watched it, since"} <Time ms={attachedMs} />
        </span>
      ))}
      {base === null && (
        <>
          . <code>web.dagster-url</code> makes links of them.
        </>
      )}
    </p>
  );
}

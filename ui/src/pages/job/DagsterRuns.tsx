import { useQuery } from "@tanstack/react-query";

import { runsQuery, useOverview } from "../../api/queries";
import { count } from "../../format/numbers";
import { ASSETS_MAX, type DagsterAsset, type DagsterRun, assetsOf, runsOf } from "../../model/runs";
import { Copyable } from "../../parts/Copyable";
import { Time } from "../../parts/Time";

/**
 * What Dagster has of this job: the runs that have started it or watch it, the newest first, and the assets that it
 * represents. Nothing, if there is none.
 */
export function DagsterRuns({ job }: { job: string }) {
  const { data } = useQuery(runsQuery(job));
  const base = useOverview().data?.dagster_url ?? null;
  const runs = runsOf(data?.links ?? []);
  const assets = assetsOf(data?.assets ?? []);
  if (runs.length === 0 && assets.length === 0) return null;
  return (
    <p className="quiet">
      Dagster:{" "}
      {assets.slice(0, ASSETS_MAX).map((asset, index) => (
        <span key={asset.path}>
          {index === 0 ? (assets.length === 1 ? "asset " : "assets ") : ", "}
          <Asset asset={asset} base={base} />
        </span>
      ))}
      {assets.length > ASSETS_MAX && ` and ${count(assets.length - ASSETS_MAX)} more`}
      {runs.map((run, index) => (
        <span key={`${run.run} ${run.step}`}>
          {(index > 0 || assets.length > 0) && "; "}
          <Run run={run} base={base} />
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

function Asset({ asset: { key, path }, base }: { asset: DagsterAsset; base: string | null }) {
  return base === null ? (
    <Copyable text={key} />
  ) : (
    <a href={`${base}${path}`}>
      <bdi>{key}</bdi>
    </a>
  );
}

function Run({ run: { run, step, attachedMs, watches }, base }: { run: DagsterRun; base: string | null }) {
  return (
    <>
      step <bdi>{step}</bdi> of run{" "}
      {base === null ? (
        <Copyable text={run} shown={run.slice(0, 8)} />
      ) : (
        <a href={`${base}/runs/${encodeURIComponent(run)}`}>{run.slice(0, 8)}</a>
      )}{" "}
      {watches ? "watches it since" : "watched it, since"} <Time ms={attachedMs} />
    </>
  );
}

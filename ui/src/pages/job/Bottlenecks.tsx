import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { commitsQuery, useHoldsUntilMs, useOverview } from "../../api/queries";
import type { JobCommits, JobInfo } from "../../api/schema";
import { percent } from "../../format/numbers";
import { measured, trendSentence } from "../../model/behind";
import { commitSentence, commitWaitsOf, mayWait } from "../../model/committing";
import type { Bottleneck } from "../../model/vertices";
import { Notice } from "../../parts/Notice";
import { useSamples } from "../../parts/samples";

const SHOWN = 3;

interface Props {
  readonly found: readonly Bottleneck[];
  readonly info: JobInfo;
}

/** What the rows wait for, what their commits wait for, and whether it gets worse. */
export function Bottlenecks({ found, info }: Props) {
  const { job } = info;
  const asks = mayWait(info);
  const commits = useQuery({ ...commitsQuery(job), enabled: asks }).data;
  return (
    <>
      <Rows found={found} job={job} />
      {asks && commits !== undefined && <Commits job={job} commits={commits} />}
    </>
  );
}

/** The sink that waits longest for its commits, if one does. */
function Commits({ job, commits }: { job: string; commits: JobCommits }) {
  const [first, ...others] = commitWaitsOf(commits);
  const ageMs = first?.sinceMs == null ? null : commits.now_ms - first.sinceMs;
  const waited = useSamples(new Map([[first?.sink ?? "", ageMs]]), commits.now_ms, measured);
  if (first === undefined) return null;
  return (
    <Notice tone="busy">
      {commitSentence(first, commits.now_ms, waited.get(first.sink) ?? [])}
      {others.length > 0 && ` So does ${others.map(({ sink }) => sink).join(", ")}.`}{" "}
      <Link to="/jobs/$job/commits" params={{ job }}>
        Its commits
      </Link>
    </Notice>
  );
}

function Rows({ found, job }: { found: readonly Bottleneck[]; job: string }) {
  const { data } = useOverview();
  const line = data?.jobs.find(({ summary }) => summary.job === job);
  const now = new Map([["behind", line?.figures?.behind ?? null]]);
  const kept = useSamples(now, useHoldsUntilMs("overview", data?.now_ms ?? 0), measured);
  const trend = trendSentence(kept.get("behind") ?? []);
  const [first, ...next] = found;
  if (first === undefined) return trend === null ? null : <p className="quiet">{trend}</p>;
  return (
    <Notice tone="busy">
      {first.sentence}
      {trend !== null && <> {trend}</>}
      {next.length > 0 && (
        <>
          {" "}
          Then{" "}
          {next
            .slice(0, SHOWN - 1)
            .map(({ vertex, kind }) => `${vertex.name} (${kind}, busy ${percent(vertex.busy)})`)
            .join(", ")}
          .
        </>
      )}
    </Notice>
  );
}

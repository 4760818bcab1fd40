import { Link, Outlet, useParams } from "@tanstack/react-router";
import { useQuery } from "@tanstack/react-query";

import { jobQuery, useNowMs, useOverview } from "../../api/queries";
import type { JobInfo } from "../../api/schema";
import { count } from "../../format/numbers";
import { duration, since } from "../../format/times";
import { toneOfJob } from "../../model/states";
import { successorOf } from "../../model/successor";
import { Answered, isNotFound } from "../../parts/Answered";
import { Badge } from "../../parts/Badge";
import { Copyable } from "../../parts/Copyable";
import { Notice } from "../../parts/Notice";
import { Ago, Time } from "../../parts/Time";
import { Gone } from "../../parts/gone";
import { ProceduresOfJob } from "../procedures/ProceduresOfJob";
import { DagsterRuns } from "./DagsterRuns";
import { GoneNotice } from "./GoneNotice";
import { Troubles } from "./Troubles";
import { JobActions } from "./actions/JobActions";
import "./job.css";

const TABS = [
  ["/jobs/$job", "Graph"],
  ["/jobs/$job/batch", "Batch"],
  ["/jobs/$job/timeline", "Timeline"],
  ["/jobs/$job/checkpoints", "Checkpoints"],
  ["/jobs/$job/state", "State"],
  ["/jobs/$job/commits", "Commits"],
  ["/jobs/$job/dead-letters", "Dead letters"],
  ["/jobs/$job/exceptions", "Exceptions"],
  ["/jobs/$job/log", "Log"],
  ["/jobs/$job/plan", "Plan"],
  ["/jobs/$job/configuration", "Configuration"],
] as const;

/** Stages are those of a bounded job, or of a bounded part of a stream that an engine runs. */
function tabsOf(info: JobInfo) {
  const hasStages = info.job_type === "BATCH" || info.stages.length > 0;
  return TABS.filter(([, text]) => text !== "Batch" || hasStages);
}

/** One job: what stands above all of its pages. */
export function JobPage() {
  const { job } = useParams({ from: "/jobs/$job" });
  const query = useQuery(jobQuery(job));
  const isGone = isNotFound(query.error);
  return (
    <Gone value={isGone && query.data !== undefined}>
      <Answered query={query}>
        {(info) => <Head info={info} goneAtMs={isGone ? query.dataUpdatedAt : null} />}
      </Answered>
      {isGone && query.data === undefined && (
        <p>
          The <Link to="/">overview</Link> lists the jobs that run, the <Link to="/history">history</Link>{" "}
          those that have ended.
        </p>
      )}
    </Gone>
  );
}

/** Where it goes on, if somebody has upgraded it, or started it again. */
function Successor({ info }: { info: JobInfo }) {
  const { data } = useOverview();
  const next = successorOf(info, data?.jobs ?? []);
  if (next === null) return null;
  return (
    <Notice tone="quiet">
      This job has ended. A job of the same name was started since then:{" "}
      <Link to="/jobs/$job" params={{ job: next.job }}>
        <bdi>{next.name}</bdi> {next.job.slice(0, 8)}
      </Link>
      , now {next.state}.
    </Notice>
  );
}

/** `goneAtMs`: the cluster does not know it any more, and this is of then; null: it does. */
function Head({ info, goneAtMs }: { info: JobInfo; goneAtMs: number | null }) {
  const nowMs = useNowMs();
  const complete = info.checkpoints.find(({ state }) => state === "completed");
  return (
    <>
      <div className="title">
        <h1 title={info.name}>
          <bdi>{info.name}</bdi>
        </h1>
        <Badge tone={toneOfJob(info.state)}>{info.state}</Badge>
        <Copyable text={info.job} shown={info.job.slice(0, 8)} />
      </div>
      <p className="quiet">
        {info.job_type === "BATCH" ? "Batch" : "Stream"}, started <Time ms={info.submitted_ms} />,{" "}
        {info.ended_ms === null
          ? `runs for ${duration(since(info.submitted_ms, nowMs))}`
          : `ran for ${duration(info.ended_ms - info.submitted_ms)}`}
        , {info.restarts === 1 ? "1 restart" : `${count(info.restarts)} restarts`}. Last checkpoint:{" "}
        <Ago ms={complete?.triggered_ms} nowMs={nowMs} />.
      </p>
      {goneAtMs !== null && <GoneNotice info={info} atMs={goneAtMs} />}
      <Successor info={info} />
      <DagsterRuns job={info.job} />
      {goneAtMs === null && <JobActions info={info} />}
      {info.incomplete !== "" && <Notice tone="warn">{info.incomplete}</Notice>}
      <Troubles info={info} />
      <ProceduresOfJob job={info.job} />
      <nav className="tabs" aria-label="Of this job">
        {tabsOf(info).map(([to, text]) => (
          <Link
            key={to}
            to={to}
            params={{ job: info.job }}
            activeOptions={{ exact: true, includeSearch: false }}
          >
            {text}
            {text === "Exceptions" && info.exceptions.length > 0 && ` (${count(info.exceptions.length)})`}
          </Link>
        ))}
      </nav>
      <Outlet />
    </>
  );
}

import { Link } from "@tanstack/react-router";

import type { JobInList } from "../../api/schema";
import { compact, count, rate } from "../../format/numbers";
import { duration } from "../../format/times";
import { type Sample, rateOf, ratesOf } from "../../model/rates";
import { toneOfJob } from "../../model/states";
import { whyOf } from "../../model/why";
import { Badge } from "../../parts/Badge";
import { Spark } from "../../parts/Spark";
import { Ago, Time } from "../../parts/Time";
import type { Column, JobsView } from "./view";

interface Props {
  readonly jobs: readonly JobInList[];
  readonly samples: ReadonlyMap<string, readonly Sample[]>;
  readonly nowMs: number;
  readonly view: JobsView;
  readonly change: (changes: Partial<JobsView>) => void;
}

export function JobsTable({ jobs, samples, nowMs, view, change }: Props) {
  if (jobs.length === 0) {
    return (
      <p className="empty">
        No job is {view.which === "all" ? "here" : view.which} yet. <code>unistream run MODULE:FUNCTION</code>{" "}
        starts one.
      </p>
    );
  }
  const head = { view, change };
  return (
    <div className="scrolls">
      <table>
        <thead>
          <tr>
            <Heading {...head} by="name" text="Job" />
            <Heading {...head} by="state" text="State" />
            <Heading {...head} by="started" text="Started" />
            <th scope="col">Rows read</th>
            <th scope="col">Rows committed</th>
            <Heading {...head} by="behind" text="Behind" isNumber />
            <th scope="col" className="number">
              Watermark lag
            </th>
            <Heading {...head} by="checkpoint" text="Last checkpoint" />
            <Heading {...head} by="restarts" text="Restarts" isNumber />
          </tr>
        </thead>
        <tbody>
          {jobs.map((job) => (
            <Row key={job.summary.job} job={job} samples={samples} nowMs={nowMs} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface HeadingProps extends Pick<Props, "view" | "change"> {
  readonly by: Column;
  readonly text: string;
  readonly isNumber?: boolean;
}

function Heading({ by, text, view, change, isNumber }: HeadingProps) {
  const sorted = view.by === by ? (view.down ? "descending" : "ascending") : "none";
  return (
    <th scope="col" aria-sort={sorted} className={isNumber === true ? "number" : undefined}>
      <button
        type="button"
        onClick={() => {
          change({ by, down: view.by === by ? !view.down : true });
        }}
      >
        {text}
        <span aria-hidden="true">{sorted === "none" ? "" : view.down ? " ↓" : " ↑"}</span>
      </button>
    </th>
  );
}

function Row({
  job: { summary, figures },
  samples,
  nowMs,
}: Pick<Props, "samples" | "nowMs"> & { job: JobInList }) {
  const why = whyOf({ summary, figures });
  return (
    <tr>
      <th scope="row">
        <Link to="/jobs/$job" params={{ job: summary.job }} title={summary.name}>
          <bdi>{summary.name}</bdi>
        </Link>
        {why !== null && (
          <div className="why" title={why}>
            {why}
          </div>
        )}
      </th>
      <td>
        <Badge tone={toneOfJob(summary.state)}>{summary.state}</Badge>
        {figures?.compiling === true && <div className="quiet">makes machine code, once</div>}
      </td>
      <td className="moment">
        <Time ms={summary.submitted_ms} />
        <div className="quiet">
          {summary.ended_ms === null
            ? `runs for ${duration(nowMs - summary.submitted_ms)}`
            : `ran for ${duration(summary.ended_ms - summary.submitted_ms)}`}
        </div>
      </td>
      <Flow samples={samples.get(`${summary.job} read`) ?? []} total={figures?.rows_read} />
      <Flow samples={samples.get(`${summary.job} committed`) ?? []} total={figures?.rows_committed} />
      <td className="number">{count(figures?.behind)}</td>
      <td className="number">
        {figures?.watermark_ms == null ? "–" : duration(Math.max(0, nowMs - figures.watermark_ms))}
      </td>
      <td>
        <Ago ms={figures?.checkpoint?.triggered_ms} nowMs={nowMs} />
        {figures !== null && figures.failed_since > 0 && (
          <div className="why">{figures.failed_since} failed since then</div>
        )}
      </td>
      <td className="number">{count(summary.restarts)}</td>
    </tr>
  );
}

function Flow({ samples, total }: { samples: readonly Sample[]; total: number | null | undefined }) {
  const text = rate(rateOf(samples));
  return (
    <td>
      {total === null || total === undefined ? (
        <span className="quiet">–</span>
      ) : (
        <>
          <Spark values={ratesOf(samples)} label={`${text} now`} />
          <span className="number">{text}</span> <span className="quiet">of {compact(total)}</span>
        </>
      )}
    </td>
  );
}

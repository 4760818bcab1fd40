import { Link } from "@tanstack/react-router";
import { memo, useMemo } from "react";

import type { JobInList } from "../../api/schema";
import { compact, count, rate } from "../../format/numbers";
import { duration, since } from "../../format/times";
import { type Sample, rateOf, ratesOf } from "../../model/rates";
import { toneOfJob } from "../../model/states";
import { whyOf } from "../../model/why";
import { Badge } from "../../parts/Badge";
import { Spark } from "../../parts/Spark";
import { Since, Time } from "../../parts/Time";

/** What changes with the time alone, as it is shown. */
interface Ages {
  readonly age: string;
  readonly lag: string;
  readonly checkpointAge: string;
}

interface Props extends Ages {
  readonly job: JobInList;
  readonly read: readonly Sample[];
  readonly committed: readonly Sample[];
}

export function agesOf({ summary, figures }: JobInList, nowMs: number): Ages {
  const { submitted_ms, ended_ms } = summary;
  return {
    age:
      ended_ms === null
        ? `runs for ${duration(nowMs - submitted_ms)}`
        : `ran for ${duration(ended_ms - submitted_ms)}`,
    lag: duration(since(figures?.watermark_ms ?? null, nowMs)),
    checkpointAge: duration(since(figures?.checkpoint?.triggered_ms ?? null, nowMs)),
  };
}

/** One job. Remembered: a second changes nothing of most of them, and a list has many. */
export const JobRow = memo(function JobRow({ job, read, committed, age, lag, checkpointAge }: Props) {
  const { summary, figures } = job;
  const why = whyOf(job);
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
        <div className="quiet">{age}</div>
      </td>
      <Flow samples={read} total={figures?.rows_read} />
      <Flow samples={committed} total={figures?.rows_committed} />
      <td className="number">{count(figures?.behind)}</td>
      <td className="number">{lag}</td>
      <td>
        <Since ms={figures?.checkpoint?.triggered_ms} age={checkpointAge} />
        {figures !== null && figures.failed_since > 0 && (
          <div className="why">{count(figures.failed_since)} failed since then</div>
        )}
      </td>
      <td className="number">{count(summary.restarts)}</td>
    </tr>
  );
});

interface FlowProps {
  readonly samples: readonly Sample[];
  readonly total: number | null | undefined;
}

const Flow = memo(function Flow({ samples, total }: FlowProps) {
  const text = useMemo(() => rate(rateOf(samples)), [samples]);
  const rates = useMemo(() => ratesOf(samples), [samples]);
  return (
    <td>
      {total === null || total === undefined ? (
        <span className="quiet">–</span>
      ) : (
        <>
          <Spark values={rates} label={`${text} now`} />
          <span className="number">{text}</span> <span className="quiet">of {compact(total)}</span>
        </>
      )}
    </td>
  );
});

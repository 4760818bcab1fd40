import { Link, useNavigate } from "@tanstack/react-router";
import { Fragment, Suspense, lazy } from "react";

import type { JobInList } from "../../api/schema";
import { count } from "../../format/numbers";
import { type FeedLine, type FeedingJob, feedsOf, linesOf } from "../../model/feeds";
import { type Sample, rateOf } from "../../model/rates";
import { isOver } from "../../model/states";
import "../../parts/flow.css";

/** The graph library is loaded when there is something to draw. */
const FeedsGraph = lazy(async () => ({ default: (await import("./FeedsGraph")).FeedsGraph }));

interface Props {
  readonly jobs: readonly JobInList[];
  readonly samples: ReadonlyMap<string, readonly Sample[]>;
}

/** Jobs that feed each other: who waits for whom, and where rows pile up. Nothing, if no job does. */
export function Feeds({ jobs, samples }: Props) {
  const navigate = useNavigate();
  const feeds = feedsOf(jobs);
  if (feeds.length === 0) return null;
  const moving = new Set(
    jobs
      .map(({ summary }) => summary.job)
      .filter((job) => (rateOf(samples.get(`${job} read`) ?? []) ?? 0) > 0),
  );
  return (
    <section aria-labelledby="feeds">
      <h2 id="feeds">Jobs that feed each other</h2>
      <Suspense fallback={<div className="flow skeleton" role="status" aria-label="Loading" />}>
        <FeedsGraph
          feeds={feeds}
          moving={moving}
          open={(job) => void navigate({ to: "/jobs/$job", params: { job } })}
        />
      </Suspense>
      <ul className="feed-lines">
        {linesOf(feeds).map((line) => (
          <li key={line.place.id}>
            <Line line={line} />
          </li>
        ))}
      </ul>
    </section>
  );
}

function Line({ line: { place, writers, readers } }: { line: FeedLine }) {
  return (
    <>
      <code>
        <bdi>{place.id}</bdi>
      </code>
      : written by <Jobs jobs={writers} of={(job) => (isOver(job.state) ? job.state : null)} />, read by{" "}
      <Jobs jobs={readers} of={({ behind }) => (behind === null ? null : `behind ${count(behind)}`)} />
    </>
  );
}

function Jobs({ jobs, of }: { jobs: readonly FeedingJob[]; of: (job: FeedingJob) => string | null }) {
  return jobs.map((job, index) => (
    <Fragment key={job.id}>
      {index > 0 && ", "}
      <Link to="/jobs/$job" params={{ job: job.id }}>
        <bdi>{job.name}</bdi>
      </Link>
      {of(job) !== null && <span className="quiet"> ({of(job)})</span>}
    </Fragment>
  ));
}

import { useInfiniteQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";

import { historyQuery } from "../../api/clusterQueries";
import type { JobSummary } from "../../api/schema";
import { count } from "../../format/numbers";
import { duration } from "../../format/times";
import { type HistoryView, lastedMs, questionOf, tablesOf } from "../../model/history";
import { toneOfJob } from "../../model/states";
import { Answered } from "../../parts/Answered";
import { Badge } from "../../parts/Badge";
import { Time } from "../../parts/Time";
import { HistoryFilters } from "./HistoryFilters";
import "./history.css";

const TABLES_SHOWN = 3;

/** Jobs that have ended, also before the cluster was started again, and those of other clusters. */
export function HistoryPage() {
  const view = useSearch({ from: "/history" });
  const navigate = useNavigate({ from: "/history" });
  const query = useInfiniteQuery(historyQuery(questionOf(view)));
  const change = (changes: Partial<HistoryView>) => {
    void navigate({ search: (before) => ({ ...before, ...changes }), replace: true });
  };
  return (
    <>
      <h1>History</h1>
      <HistoryFilters view={view} change={change} />
      <Answered query={query}>
        {({ pages }) => (
          <>
            <Jobs jobs={pages.flatMap(({ jobs }) => jobs)} ends={!query.hasNextPage} />
            {query.hasNextPage && (
              <button
                type="button"
                className="more"
                disabled={query.isFetchingNextPage}
                onClick={() => {
                  void query.fetchNextPage();
                }}
              >
                {query.isFetchingNextPage ? "Reading …" : "Older ones"}
              </button>
            )}
          </>
        )}
      </Answered>
    </>
  );
}

function Jobs({ jobs, ends }: { jobs: readonly JobSummary[]; ends: boolean }) {
  if (jobs.length === 0) {
    return (
      <p className="empty">
        {ends
          ? "No job that has ended is like this. Fewer words or another time find more."
          : "None yet: older ones may be."}
      </p>
    );
  }
  return (
    <div className="scrolls">
      <table className="history-table">
        <thead>
          <tr>
            <th scope="col">Job</th>
            <th scope="col">State</th>
            <th scope="col">Began</th>
            <th scope="col">Ended</th>
            <th scope="col" className="number">
              Lasted
            </th>
            <th scope="col" className="number">
              Restarts
            </th>
            <th scope="col">Wrote</th>
          </tr>
        </thead>
        <tbody>
          {jobs.map((job) => (
            <tr key={job.job}>
              <th scope="row">
                <Link to="/jobs/$job" params={{ job: job.job }}>
                  <bdi>{job.name === "" ? job.job : job.name}</bdi>
                </Link>
                <div className="quiet">
                  <code>{job.job.slice(0, 8)}</code> · {job.job_type.toLowerCase()}
                </div>
              </th>
              <td>
                <Badge tone={toneOfJob(job.state)}>{job.state}</Badge>
              </td>
              <td>
                <Time ms={job.submitted_ms} />
              </td>
              <td>
                <Time ms={job.ended_ms} />
              </td>
              <td className="number">{duration(lastedMs(job))}</td>
              <td className="number">{count(job.restarts)}</td>
              <Tables job={job} />
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Tables({ job }: { job: JobSummary }) {
  const tables = tablesOf(job);
  return (
    <td className="history-tables" title={tables.join("\n")}>
      {tables.slice(0, TABLES_SHOWN).map((uri) => (
        <div key={uri}>
          <bdi>{uri}</bdi>
        </div>
      ))}
      {tables.length > TABLES_SHOWN && <span className="quiet">and {tables.length - TABLES_SHOWN} more</span>}
    </td>
  );
}

import { useNavigate, useSearch } from "@tanstack/react-router";

import { useHoldsUntilMs, useNowMs, useOverview } from "../../api/queries";
import type { Overview } from "../../api/schema";
import { count } from "../../format/numbers";
import { isOver } from "../../model/states";
import { Answered } from "../../parts/Answered";
import { Notice } from "../../parts/Notice";
import { useSamples } from "../../parts/samples";
import { Feeds } from "./Feeds";
import { JobsTable } from "./JobsTable";
import { type JobsView, sortedJobs } from "./view";
import "./overview.css";

/** Is everything running, is it keeping up, is it safe: all jobs of the cluster. */
export function OverviewPage() {
  const query = useOverview();
  return (
    <>
      <h1>Jobs</h1>
      <Answered query={query}>{(overview) => <Jobs overview={overview} />}</Answered>
    </>
  );
}

function Jobs({ overview }: { overview: Overview }) {
  const view = useSearch({ from: "/" });
  const navigate = useNavigate({ from: "/" });
  const change = (changes: Partial<JobsView>) => {
    void navigate({ search: (before) => ({ ...before, ...changes }), replace: true });
  };
  const counters = overview.jobs.flatMap(({ summary, figures }): [string, number | null][] =>
    figures === null
      ? []
      : [
          [`${summary.job} read`, figures.rows_read],
          [`${summary.job} committed`, figures.rows_committed],
        ],
  );
  const nowMs = useNowMs() ?? overview.now_ms;
  const samples = useSamples(new Map(counters), useHoldsUntilMs("overview", overview.now_ms));
  const running = overview.jobs.filter(({ summary }) => !isOver(summary.state));
  const shown = sortedJobs(overview.jobs, view);
  return (
    <>
      <dl className="facts">
        <Fact name="Running" value={count(running.length)} />
        <Fact
          name="Failed"
          value={count(overview.jobs.filter(({ summary }) => summary.state === "FAILED").length)}
        />
        <Fact name="Workers" value={count(overview.workers)} />
        <Fact name="Slots free" value={`${count(overview.free_slots)} of ${count(overview.slots)}`} />
      </dl>
      {overview.notes.map((note) => (
        <Notice key={note} tone="warn">
          {note}
        </Notice>
      ))}
      <fieldset className="filters">
        <legend>Show</legend>
        {(["running", "ended", "all"] as const).map((which) => (
          <label key={which}>
            <input
              type="radio"
              name="which"
              checked={view.which === which}
              onChange={() => {
                change({ which });
              }}
            />
            {which}
          </label>
        ))}
      </fieldset>
      <JobsTable jobs={shown} samples={samples} nowMs={nowMs} view={view} change={change} />
      <Feeds jobs={overview.jobs} samples={samples} />
    </>
  );
}

function Fact({ name, value }: { name: string; value: string }) {
  return (
    <div className="fact">
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

import type { JobInList } from "../../api/schema";
import type { Sample } from "../../model/rates";
import { JobRow, agesOf } from "./JobRow";
import type { Column, JobsView } from "./view";

const NONE: readonly Sample[] = [];

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
            <JobRow
              key={job.summary.job}
              job={job}
              read={samples.get(`${job.summary.job} read`) ?? NONE}
              committed={samples.get(`${job.summary.job} committed`) ?? NONE}
              {...agesOf(job, nowMs)}
            />
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

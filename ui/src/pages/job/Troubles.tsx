import { Link } from "@tanstack/react-router";

import { useNowMs, useOverview } from "../../api/queries";
import type { JobInfo } from "../../api/schema";
import { type Trouble, troublesOf } from "../../model/trouble";
import { Notice } from "../../parts/Notice";
import { Time } from "../../parts/Time";

/** What is wrong with a job, above all of its pages: cause, place, since when, and what comes next. */
export function Troubles({ info }: { info: JobInfo }) {
  const { data } = useOverview();
  const line = data?.jobs.find(({ summary }) => summary.job === info.job);
  return troublesOf(info, line?.figures?.silent ?? [], useNowMs()).map((trouble) => (
    <Notice key={`${trouble.page ?? ""} ${trouble.what}`} tone={trouble.tone}>
      <One trouble={trouble} info={info} />
    </Notice>
  ));
}

const PAGES = {
  exceptions: ["/jobs/$job/exceptions", "Exceptions"],
  checkpoints: ["/jobs/$job/checkpoints", "Checkpoints"],
} as const;

function One({
  trouble: { what, task, vertex, atMs, then, tone, page },
  info,
}: {
  trouble: Trouble;
  info: JobInfo;
}) {
  const [to, text] = page === null ? [null, null] : PAGES[page];
  return (
    <div className="trouble">
      <strong>
        <bdi>{what}</bdi>
      </strong>
      <span>
        {atMs !== null && <Time ms={atMs} />}
        {task !== null && (
          <>
            {" in "}
            {vertex === null ? (
              <bdi>{task}</bdi>
            ) : (
              <Link to="/jobs/$job" params={{ job: info.job }} search={{ vertex }}>
                <bdi>{task}</bdi>
              </Link>
            )}
          </>
        )}
        {task === null && vertex !== null && (
          <Link to="/jobs/$job" params={{ job: info.job }} search={{ vertex }}>
            Its subtasks
          </Link>
        )}
        {to !== null && (
          <>
            {" · "}
            <Link to={to} params={{ job: info.job }}>
              {text}
            </Link>
          </>
        )}
      </span>
      <span>
        {then}
        {tone === "bad" && info.restarts_at_ms !== null && (
          <>
            {" Next try: "}
            <Time ms={info.restarts_at_ms} />.
          </>
        )}
      </span>
    </div>
  );
}

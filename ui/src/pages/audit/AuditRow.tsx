import { Link } from "@tanstack/react-router";
import { memo } from "react";

import type { AuditEntry } from "../../api/schema";
import { type Deed, deedOf, outcomeOf } from "../../model/audit";
import { Badge } from "../../parts/Badge";
import { Time } from "../../parts/Time";

/** Of the id of a job, which has 32 characters. */
const SHOWN = 8;

/** One request: in words where they are known, and as it was. */
export const AuditRow = memo(function AuditRow({ entry }: { entry: AuditEntry }) {
  const deed = deedOf(entry);
  const outcome = outcomeOf(entry.status);
  return (
    <tr>
      <td>
        <Time ms={entry.atMs} />
      </td>
      <th scope="row">
        <bdi>{entry.name}</bdi>
        {entry.token !== "" && (
          <div className="quiet">
            <code>{entry.token}</code>
          </div>
        )}
      </th>
      <td>
        {deed !== null && <Words deed={deed} />}
        <div className={deed === null ? undefined : "quiet"}>
          <code>
            {entry.method} <bdi>{entry.path}</bdi>
          </code>
        </div>
      </td>
      <td>
        <bdi>{entry.client}</bdi>
      </td>
      <td>
        <Badge tone={outcome.tone}>{outcome.kind}</Badge>
        <div className="quiet">
          {entry.status === 0 ? outcome.words : `${entry.status}: ${outcome.words}`}
        </div>
      </td>
    </tr>
  );
});

function Words({ deed: { words, job, what } }: { deed: Deed }) {
  return (
    <>
      {words}
      {job !== null && (
        <>
          {" "}
          <Link to="/jobs/$job" params={{ job }}>
            <bdi>{job.slice(0, SHOWN)}</bdi>
          </Link>
        </>
      )}
      {what !== null && (
        <>
          {": "}
          <bdi>{what}</bdi>
        </>
      )}
    </>
  );
}

import { useQuery } from "@tanstack/react-query";
import { useNavigate, useParams, useSearch } from "@tanstack/react-router";

import { checkpointsQuery, jobQuery, stateQuery, useNowMs } from "../../../api/queries";
import type { CheckpointsInfo, SnapshotContents } from "../../../api/schema";
import { bytes } from "../../../format/numbers";
import { localTime } from "../../../format/times";
import { noStateOf } from "../../../model/noState";
import { firstRows, suggestedQuery } from "../../../model/savepointQuery";
import { Answered, isNotFound } from "../../../parts/Answered";
import { Copyable } from "../../../parts/Copyable";
import { Notice } from "../../../parts/Notice";
import { Ago } from "../../../parts/Time";
import { OperatorsTable } from "./OperatorsTable";
import { QueryBox } from "./QueryBox";
import "./state.css";

/** What a snapshot of the job holds: operators, states, sizes, and rows by SQL. */
export function StateTab() {
  const { job } = useParams({ from: "/jobs/$job" });
  const { id } = useSearch({ from: "/jobs/$job/state" });
  const snapshots = useQuery(checkpointsQuery(job));
  const contents = useQuery(stateQuery(job, id));
  const info = useQuery(jobQuery(job));
  const hasNone = isNotFound(contents.error) && info.data !== undefined && !isNotFound(info.error);
  const none = hasNone ? noStateOf(info.data, snapshots.data, id, contents.error?.message ?? "") : null;
  return (
    <>
      {snapshots.data !== undefined && <Choice info={snapshots.data} chosen={id} />}
      {none === null ? (
        <Answered query={contents}>{(found) => <Contents contents={found} />}</Answered>
      ) : (
        <div className="empty" role="status">
          <p>{none.what}</p>
          {none.then !== "" && <p className="quiet">{none.then}</p>}
        </div>
      )}
    </>
  );
}

/** One of the snapshots that are kept; the newest one, unless somebody chooses. */
function Choice({ info, chosen }: { info: CheckpointsInfo; chosen: number | undefined }) {
  const navigate = useNavigate({ from: "/jobs/$job/state" });
  const known = [...info.latest, info.latest_completed, info.latest_savepoint];
  const kept = new Map(
    known.flatMap((one) =>
      one !== null && one.status === "completed" && !one.discarded ? [[one.checkpoint_id, one] as const] : [],
    ),
  );
  return (
    <label className="choice">
      Snapshot
      <select
        value={chosen ?? ""}
        onChange={({ target }) => {
          const id = target.value === "" ? {} : { id: Number(target.value) };
          void navigate({ search: ({ sql }) => ({ ...id, ...(sql === undefined ? {} : { sql }) }) });
        }}
      >
        <option value="">the newest one, whichever it is</option>
        {chosen !== undefined && !kept.has(chosen) && <option value={chosen}>{chosen}</option>}
        {[...kept.values()].map((one) => (
          <option key={one.checkpoint_id} value={one.checkpoint_id}>
            {one.checkpoint_id} · {one.kind.toLowerCase()} · {localTime(one.timestamp_ms)}
          </option>
        ))}
      </select>
    </label>
  );
}

function Contents({ contents }: { contents: SnapshotContents }) {
  const { job } = useParams({ from: "/jobs/$job" });
  const view = useSearch({ from: "/jobs/$job/state" });
  const navigate = useNavigate({ from: "/jobs/$job/state" });
  const nowMs = useNowMs();
  const run = (sql: string) => {
    void navigate({ search: (before) => ({ ...before, sql }) });
  };
  return (
    <>
      <p className="quiet">
        {contents.kind === "checkpoint" ? "Checkpoint" : "Savepoint"} {contents.checkpoint_id}, taken{" "}
        <Ago ms={contents.taken_ms} nowMs={nowMs} />, {bytes(contents.size)} of state
        {contents.in_flight_bytes > 0 &&
          `, and ${bytes(contents.in_flight_bytes)} of rows that are in no state yet`}
        . <Copyable text={contents.path} />
      </p>
      {contents.advice !== "" && <Notice tone="busy">{contents.advice}</Notice>}
      <OperatorsTable
        operators={contents.operators}
        onRows={
          contents.no_query === null
            ? (table) => {
                run(firstRows(table));
              }
            : null
        }
      />
      {contents.no_query === null ? (
        <QueryBox
          key={view.sql ?? ""}
          job={job}
          view={view}
          suggested={suggestedQuery(contents.operators)}
          limits={contents.limits}
          run={run}
        />
      ) : (
        <Notice tone="quiet">{contents.no_query}</Notice>
      )}
    </>
  );
}

import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";

import { workersQuery } from "../../api/clusterQueries";
import type { BlockedHostInfo, WorkersInfo } from "../../api/schema";
import { bytes, count } from "../../format/numbers";
import { duration } from "../../format/times";
import { matching, totalsOf } from "../../model/workers";
import { Answered } from "../../parts/Answered";
import { Facts } from "../../parts/Facts";
import { Filter } from "../../parts/Filter";
import { NoChanges } from "../../parts/NoChanges";
import { useMay } from "../../parts/useMay";
import { DrainDialog } from "./DrainDialog";
import { WorkerRow } from "./WorkerRow";
import type { WorkersView } from "./view";
import "./workers.css";

/** Where the work is done: hosts, workers, what is in their slots, and what they have of their memory. */
export function WorkersPage() {
  const query = useQuery(workersQuery);
  return (
    <>
      <h1>Workers</h1>
      <Answered query={query}>{(info) => <Workers info={info} />}</Answered>
    </>
  );
}

function Workers({ info }: { info: WorkersInfo }) {
  const view = useSearch({ from: "/workers" });
  const navigate = useNavigate({ from: "/workers" });
  const change = (changes: Partial<WorkersView>) => {
    void navigate({ search: (before) => ({ ...before, ...changes }), replace: true });
  };
  const may = useMay("operate");
  const [drained, setDrained] = useState<string | null>(null);
  const asked = info.workers.find(({ worker }) => worker.id === drained);
  const totals = totalsOf(info);
  const shown = matching(info.workers, view.q);
  return (
    <>
      <Facts
        of={[
          [
            "Workers",
            `${count(totals.registered)}${totals.starting > 0 ? ` + ${totals.starting} starting` : ""}`,
          ],
          [
            "Hosts",
            <Link key="hosts" to="/hosts">
              {count(totals.hosts)}
            </Link>,
          ],
          ["Slots free", `${count(totals.free)} of ${count(totals.slots)}`],
          ["Cores of their hosts", count(totals.cores)],
          ["Memory of their hosts", bytes(totals.memoryBytes)],
        ]}
      />
      {info.blocked.length > 0 && <Blocked hosts={info.blocked} nowMs={info.now_ms} />}
      {info.workers.length === 0 ? (
        <p className="empty">
          There is no worker. A cluster with the target spark or local starts them with the first job; to a
          standalone one they come by <code>unistream taskmanager start --jobmanager ADDRESS</code>.
        </p>
      ) : (
        <>
          <Filter
            label="With"
            text={view.q}
            change={(q) => {
              change({ q });
            }}
          />
          {shown.length === 0 && <p className="empty">No host, worker, job or task has this in its name.</p>}
          <ul className="stack">
            {shown.map((one) => (
              <WorkerRow
                key={one.worker.id}
                shown={one}
                nowMs={info.now_ms}
                open={view.worker === one.worker.id}
                toggle={(open) => {
                  change({ worker: open ? one.worker.id : "" });
                }}
                drain={
                  may.is === "yes"
                    ? () => {
                        setDrained(one.worker.id);
                      }
                    : null
                }
              />
            ))}
          </ul>
          <NoChanges may={may} />
          {asked !== undefined && (
            <DrainDialog
              shown={asked}
              closed={() => {
                setDrained(null);
              }}
            />
          )}
        </>
      )}
    </>
  );
}

function Blocked({ hosts, nowMs }: { hosts: readonly BlockedHostInfo[]; nowMs: number }) {
  return (
    <section className="notice tone-warn" aria-label="Blocked hosts">
      <ul className="blocked">
        {hosts.map(({ host, until_ms, shut, losses }) => (
          <li key={host}>
            <strong>
              <bdi>{host}</bdi>
            </strong>{" "}
            is avoided for {duration(until_ms - nowMs)} more, since it has lost {losses.length} workers:{" "}
            {losses.map((loss, index) => (
              <span key={`${index} ${loss}`}>
                {index > 0 && "; "}
                <bdi>{loss}</bdi>
              </span>
            ))}
            {!shut && ". Its slots are given out all the same: no other host has workers."}
          </li>
        ))}
      </ul>
    </section>
  );
}

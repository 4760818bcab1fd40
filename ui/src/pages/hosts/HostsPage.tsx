import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";

import { certificatesQuery, workersQuery } from "../../api/clusterQueries";
import { useNowMs } from "../../api/queries";
import { tokensQuery } from "../../api/tokens";
import type { WorkersInfo } from "../../api/schema";
import { count } from "../../format/numbers";
import { hostsOf, hostsWith, joinTokens, nowhere } from "../../model/hosts";
import { Answered } from "../../parts/Answered";
import { Filter } from "../../parts/Filter";
import { NoChanges } from "../../parts/NoChanges";
import { useMay } from "../../parts/useMay";
import { HostRow } from "./HostRow";
import { JoinTokens } from "./JoinTokens";
import "./hosts.css";

/** The machines of the cluster, and how another one joins. */
export function HostsPage() {
  const query = useQuery(workersQuery);
  return (
    <>
      <h1>Hosts</h1>
      <Answered query={query}>{(info) => <Hosts info={info} />}</Answered>
      <Joining />
    </>
  );
}

function Hosts({ info }: { info: WorkersInfo }) {
  const { q } = useSearch({ from: "/hosts" });
  const navigate = useNavigate({ from: "/hosts" });
  const hosts = hostsOf(info);
  const found = hostsWith(hosts, q);
  const unplaced = nowhere(info);
  return (
    <>
      <p className="quiet">
        What runs in their slots stands on the page of <Link to="/workers">workers</Link>, how they show who
        they are on that of <Link to="/certificates">certificates</Link>.
        {unplaced > 0 && ` ${count(unplaced)} that start have not said where they are.`}
      </p>
      {hosts.length === 0 ? (
        <p className="empty">No host has a worker.</p>
      ) : (
        <>
          <Filter
            label="With"
            text={q}
            change={(text) => {
              void navigate({ search: { q: text }, replace: true });
            }}
          />
          {found.length === 0 && <p className="empty">No host has this in its name, address or workers.</p>}
          <ul className="stack">
            {found.map((host) => (
              <HostRow key={host.name} host={host} nowMs={info.now_ms} />
            ))}
          </ul>
        </>
      )}
    </>
  );
}

/** For admins: who else is not told what lets hosts in. */
function Joining() {
  const may = useMay("admin");
  const { data } = useQuery(certificatesQuery);
  if (data === undefined) return null;
  return (
    <section aria-labelledby="joining" className="stack">
      <h2 id="joining">Let another host join</h2>
      {data.encrypts_workers ? (
        <>
          <NoChanges may={may} />
          {may.is === "yes" && <Joins />}
        </>
      ) : (
        <p className="quiet">
          This cluster takes no workers of other hosts: start it with <code>--target standalone</code> and{" "}
          <code>-D jobmanager.bind-host=0.0.0.0</code>.
        </p>
      )}
    </section>
  );
}

function Joins() {
  const query = useQuery(tokensQuery);
  const nowMs = useNowMs();
  return (
    <Answered query={query}>
      {(tokens) => <JoinTokens tokens={joinTokens(tokens, nowMs)} nowMs={nowMs} />}
    </Answered>
  );
}

import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";

import { certificatesQuery, workersQuery } from "../../api/clusterQueries";
import { useNowMs } from "../../api/queries";
import { tokensQuery } from "../../api/tokens";
import type { WorkersInfo } from "../../api/schema";
import { count } from "../../format/numbers";
import type { May } from "../../model/access";
import { type Joinable, hostsOf, hostsWith, joinTokens, joinable, nowhere } from "../../model/hosts";
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
      <Way joinable={joinable(data)} may={may} />
    </section>
  );
}

function Way({ joinable: is, may }: { joinable: Joinable; may: May }) {
  switch (is) {
    case "yes":
      return may.is === "yes" ? <Joins /> : <NoChanges may={may} />;
    case "no workers of other hosts":
      return (
        <p className="quiet">
          This cluster takes no workers of other hosts: start it with <code>--target standalone</code>,{" "}
          <code>-D jobmanager.bind-host=0.0.0.0</code> and <code>-D rest.bind-address=0.0.0.0</code>.
        </p>
      );
    case "no REST API for other hosts":
      return (
        <p className="quiet">
          Hosts ask the REST API for their certificate, and it listens on a loopback address: start the
          cluster with <code>-D rest.bind-address=0.0.0.0</code>, too.
        </p>
      );
  }
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

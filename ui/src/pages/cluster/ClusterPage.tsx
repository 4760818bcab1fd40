import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import { clusterQuery } from "../../api/clusterQueries";
import type { ClusterInfo } from "../../api/schema";
import { UNKNOWN, bytes } from "../../format/numbers";
import { nameOfDisk, roomOf, toneOfRoom } from "../../model/disks";
import { Answered } from "../../parts/Answered";
import { Badge } from "../../parts/Badge";
import { Copyable } from "../../parts/Copyable";
import { Notice } from "../../parts/Notice";
import { Ago, Time } from "../../parts/Time";
import { Disks } from "./Disks";
import { Leaders } from "./Leaders";
import { Options } from "./Options";
import "./cluster.css";

/** Who leads, where the cluster keeps what, with which versions and which configuration. */
export function ClusterPage() {
  const query = useQuery(clusterQuery);
  return (
    <>
      <h1>Cluster</h1>
      <Answered query={query}>{(info) => <Cluster info={info} />}</Answered>
    </>
  );
}

function Cluster({ info }: { info: ClusterInfo }) {
  const away = info.metadata.health.away_since_ms;
  const scarce = info.disks.filter((disk) => ["scarce", "full"].includes(roomOf(disk).is));
  return (
    <>
      {info.zookeeper !== null && !info.zookeeper.connected && (
        <Notice tone="bad">
          This master has no contact to ZooKeeper: it decides nothing until it has. What runs goes on.
        </Notice>
      )}
      {away !== null && (
        <Notice tone="warn">
          {`The metadata database does not answer (${info.metadata.health.reason ?? ""}): jobs go on, and the history is not complete.`}
        </Notice>
      )}
      {scarce.map((disk) => (
        <Notice key={disk.what} tone={toneOfRoom(roomOf(disk))}>
          {`There is little room left: ${nameOfDisk(disk.what)}, ${bytes(disk.free_bytes)} of ${bytes(disk.total_bytes)} free. When it is full, checkpoints fail: make room there.`}
        </Notice>
      ))}
      <div className="halves">
        <Leaders info={info} />
        <section className="card" aria-labelledby="places">
          <h2 id="places">Places</h2>
          <dl className="pairs">
            <Pair name="Folder of this master">
              <Place text={info.folder} />
            </Pair>
            <Pair name="Submitted jobs, for the next leader">
              <Place text={info.jobs_folder} />
            </Pair>
            <Pair name="Checkpoints">
              <Place text={info.checkpoints} />
            </Pair>
            <Pair name="Savepoints">
              <Place text={info.savepoints} />
            </Pair>
            <Pair name="History and catalogue">
              <Place text={info.metadata.url} />{" "}
              {away === null ? (
                <Badge tone="good">answers</Badge>
              ) : (
                <Badge tone="bad">
                  away, <Ago ms={away} nowMs={info.now_ms} />
                </Badge>
              )}
            </Pair>
            {info.zookeeper !== null && (
              <Pair name="ZooKeeper">
                <Place text={info.zookeeper.servers} /> <code>{info.zookeeper.folder}</code>{" "}
                <Badge tone={info.zookeeper.connected ? "good" : "bad"}>
                  {info.zookeeper.connected ? "in contact" : "no contact"}
                </Badge>
              </Pair>
            )}
          </dl>
        </section>
        <Disks disks={info.disks} />
        <section className="card" aria-labelledby="versions">
          <h2 id="versions">Versions</h2>
          <dl className="pairs pairs-short">
            {Object.entries(info.versions).map(([name, version]) => (
              <Pair key={name} name={name}>
                {version ?? <span className="quiet">not installed</span>}
              </Pair>
            ))}
          </dl>
        </section>
        <section className="card" aria-labelledby="cluster-facts">
          <h2 id="cluster-facts">This cluster</h2>
          <dl className="pairs">
            <Pair name="Id">
              <Copyable text={info.cluster} />
            </Pair>
            <Pair name="Name">
              <bdi>{info.name}</bdi>
            </Pair>
            <Pair name="Workers run on">
              {info.target}, on these <Link to="/hosts">hosts</Link>
            </Pair>
            <Pair name="Its servers show">
              <Link to="/certificates">certificates</Link>
            </Pair>
            <Pair name="Leads since">
              <Time ms={info.leads_since_ms} />
            </Pair>
            <Pair name="Started again by">
              {info.goes_on === "" ? (
                <span className="quiet">nothing: its jobs end with it</span>
              ) : (
                <Copyable text={info.goes_on} />
              )}
            </Pair>
          </dl>
        </section>
      </div>
      <Options options={info.options} />
    </>
  );
}

function Pair({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Place({ text }: { text: string }) {
  return text === "" ? <span className="quiet">{UNKNOWN}</span> : <Copyable text={text} />;
}

import type { ClusterInfo } from "../../api/schema";
import { type Elsewhere, addressOf } from "../../model/masters";
import { duration } from "../../format/times";
import { Badge } from "../../parts/Badge";
import { Ago, Time } from "../../parts/Time";

/** Who leads, who stands by, and who led before. */
export function Leaders({ info }: { info: ClusterInfo }) {
  const standbys = (info.contenders ?? []).filter(({ leads }) => !leads);
  return (
    <section className="card" aria-labelledby="leaders">
      <h2 id="leaders">Masters</h2>
      <p>
        <Badge tone="good">leads</Badge> <code>{info.process}</code> since{" "}
        <Ago ms={info.leads_since_ms} nowMs={info.now_ms} />, epoch {info.epoch}
      </p>
      {standbys.map(({ process, rest_url: url }, place) => (
        <p key={`${place} ${process}`}>
          <Badge tone="quiet">stands by</Badge>{" "}
          {process === "" ? (
            <span className="quiet">of a version that does not say its host</span>
          ) : (
            <code>{process}</code>
          )}
          <Served at={url === null ? null : addressOf(url)} />
        </p>
      ))}
      <p className="quiet">{sentence(info, standbys.length)}</p>
      <Former info={info} />
    </section>
  );
}

function Served({ at }: { at: Elsewhere | null }) {
  if (at === null) return null;
  return (
    <>
      {", answers for the leader at "}
      <a href={`${at.origin}/ui/`}>{at.host}</a>
    </>
  );
}

function sentence(info: ClusterInfo, standbys: number): string {
  if (info.zookeeper === null) {
    return "One master, without high availability: when it ends, its jobs wait until it is started again.";
  }
  if (info.contenders === null) return "ZooKeeper does not answer: who stands by is not known.";
  return standbys === 0
    ? "Nobody stands by: start another master, or a failure of this one is an outage."
    : "";
}

function Former({ info }: { info: ClusterInfo }) {
  if (info.leaders === null) {
    return <p className="quiet">Who led before is not known: the metadata database does not answer.</p>;
  }
  const former = info.leaders.filter(({ epoch }) => epoch !== info.epoch);
  if (former.length === 0) return null;
  return (
    <details>
      <summary>Led before: {former.length}</summary>
      <ol className="former">
        {former.map(({ epoch, process, granted_ms, ended_ms, reason }) => (
          <li key={epoch}>
            <code>{process}</code> from <Time ms={granted_ms} />{" "}
            {ended_ms === null ? "; its end is not recorded" : `for ${duration(ended_ms - granted_ms)}`}
            {reason !== null && reason !== "" && (
              <>
                : <bdi>{reason}</bdi>
              </>
            )}
          </li>
        ))}
      </ol>
    </details>
  );
}

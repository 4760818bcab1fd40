import { Link } from "@tanstack/react-router";

import { bytes, count } from "../../format/numbers";
import { duration } from "../../format/times";
import { type Host, toneOfHost } from "../../model/hosts";
import { Badge } from "../../parts/Badge";
import { Copyable } from "../../parts/Copyable";
import { Ago, Time } from "../../parts/Time";

const ADDRESSES_SHOWN = 16;

/** One host: how it is, what it has, and its workers. */
export function HostRow({ host, nowMs }: { host: Host; nowMs: number }) {
  const { name, workers, addresses, blocked } = host;
  return (
    <li className="card host">
      <div className="host-head">
        <Badge tone={toneOfHost(host.state)}>{host.state}</Badge>
        <strong>
          <bdi>{name}</bdi>
        </strong>
        <Link to="/workers" search={{ q: name, worker: "" }}>
          {workers.length === 1 ? "1 worker" : `${count(workers.length)} workers`}
        </Link>
        <span>
          {count(host.free)} of {count(host.slots)} slots free
        </span>
        <span className="quiet">
          {count(host.cores)} cores, {bytes(host.memoryBytes)}
        </span>
        {host.sinceMs !== null && (
          <span className="quiet">
            since <Time ms={host.sinceMs} />
          </span>
        )}
        {host.heardMs !== null && (
          <span className="quiet">
            heard <Ago ms={host.heardMs} nowMs={nowMs} />
          </span>
        )}
      </div>
      {blocked !== null && (
        <p>
          Avoided for {duration(blocked.until_ms - nowMs)} more, since it has lost{" "}
          {count(blocked.losses.length)} workers
          {blocked.shut ? "." : "; its slots are given out all the same: no other host has workers."}
        </p>
      )}
      <ul className="host-addresses" aria-label="Addresses">
        {addresses.slice(0, ADDRESSES_SHOWN).map((address, index) => (
          <li key={`${index} ${address}`}>
            <Copyable text={address} />
          </li>
        ))}
        {addresses.length > ADDRESSES_SHOWN && (
          <li className="quiet">{count(addresses.length - ADDRESSES_SHOWN)} more</li>
        )}
      </ul>
    </li>
  );
}

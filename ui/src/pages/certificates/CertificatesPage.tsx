import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { certificatesQuery } from "../../api/clusterQueries";
import type { CertificatesShown } from "../../api/schema";
import { duration } from "../../format/times";
import { rotatedMs, toneOfValidity, validityOf } from "../../model/certificates";
import { Answered } from "../../parts/Answered";
import { Badge } from "../../parts/Badge";
import { Copyable } from "../../parts/Copyable";
import { Ago, Time } from "../../parts/Time";
import { Authorities } from "./Authorities";
import { IssuedTable } from "./IssuedTable";
import "./certificates.css";

/** Whose certificates the servers of the cluster show, to whom they were issued, and until when. */
export function CertificatesPage() {
  const query = useQuery(certificatesQuery);
  return (
    <>
      <h1>Certificates</h1>
      <Answered query={query}>{(shown) => <Certificates shown={shown} />}</Answered>
    </>
  );
}

function Certificates({ shown }: { shown: CertificatesShown }) {
  if (shown.authorities.length === 0) {
    return (
      <p className="empty">
        This cluster has no certificates: all its servers listen on loopback addresses. It makes an authority
        of its own when it is started for other hosts, such as with{" "}
        <code>-D jobmanager.bind-host=0.0.0.0 -D rest.bind-address=0.0.0.0</code>.
      </p>
    );
  }
  return (
    <>
      <p className="quiet">
        With these the servers of the cluster show who they are, to each other and to clients. Which hosts
        have workers stands on the page of <Link to="/hosts">hosts</Link>.
      </p>
      <Authorities authorities={shown.authorities} nowMs={shown.now_ms} />
      <div className="halves">
        <Rest shown={shown} />
        <Rotation shown={shown} />
      </div>
      <IssuedTable shown={shown} />
    </>
  );
}

function Rest({ shown: { rest, rest_renewed_ms: renewedMs, now_ms: nowMs } }: { shown: CertificatesShown }) {
  return (
    <section className="card" aria-labelledby="rest">
      <h2 id="rest">REST API and these pages</h2>
      {rest === null ? (
        <p className="quiet">They speak plain HTTP: they listen on a loopback address.</p>
      ) : (
        <>
          <p>
            <Validity of={rest} nowMs={nowMs} /> until <Time ms={rest.until_ms} />
            {renewedMs !== null && (
              <>
                ; replaced by itself after <Time ms={renewedMs} />
              </>
            )}
          </p>
          <p className="quiet">
            For{" "}
            {rest.hosts.map((host, index) => (
              <span key={host}>
                {index > 0 && ", "}
                <code>{host}</code>
              </span>
            ))}
          </p>
        </>
      )}
    </section>
  );
}

function Rotation({ shown }: { shown: CertificatesShown }) {
  const atMs = rotatedMs(shown.authorities);
  return (
    <section className="card" aria-labelledby="rotation">
      <h2 id="rotation">Another authority</h2>
      <p>
        {atMs === null ? (
          "It was not replaced, or nothing that a former one has issued is believed any more."
        ) : (
          <>
            Replaced <Ago ms={atMs} nowMs={shown.now_ms} />, <Time ms={atMs} />.
          </>
        )}
      </p>
      <p>
        <Copyable text="unistream certs rotate" />
      </p>
      <p className="quiet">
        gives the cluster another one: jobs go on. What the former one has issued is believed for{" "}
        {duration(30 * 86_400_000)} (<code>--keep</code>): within that time start masters again, then workers,
        and give people new tokens.
      </p>
    </section>
  );
}

function Validity({ of, nowMs }: { of: { readonly until_ms: number }; nowMs: number }) {
  const validity = validityOf(of, nowMs);
  return <Badge tone={toneOfValidity(validity)}>{validity}</Badge>;
}

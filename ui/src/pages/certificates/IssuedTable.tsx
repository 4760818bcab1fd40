import { useNavigate, useSearch } from "@tanstack/react-router";

import type { CertificatesShown, CertificateShown } from "../../api/schema";
import { count } from "../../format/numbers";
import { toneOfValidity, validityOfIssued, withName } from "../../model/certificates";
import { Badge } from "../../parts/Badge";
import { Filter } from "../../parts/Filter";
import { Scrolls } from "../../parts/Scrolls";
import { Time } from "../../parts/Time";

/** Which processes have a certificate, until when; what can be known is what this master has issued. */
export function IssuedTable({ shown }: { shown: CertificatesShown }) {
  const { q } = useSearch({ from: "/certificates" });
  const navigate = useNavigate({ from: "/certificates" });
  if (!shown.encrypts_workers) {
    return <p className="quiet">Workers have none: they are all on the host of the JobManager.</p>;
  }
  const found = withName(shown.processes, q);
  return (
    <section aria-labelledby="processes" className="stack">
      <h2 id="processes">Processes</h2>
      <p className="quiet">
        What this master has issued since it was started
        {shown.left_out > 0 && `, but ${count(shown.left_out)} more`}. A certificate lasts as long as its
        process may run: a process that is started again gets a new one.
      </p>
      <Filter
        label="With"
        text={q}
        change={(text) => {
          void navigate({ search: { q: text }, replace: true });
        }}
      />
      {found.length === 0 ? (
        <p className="empty">
          {shown.processes.length === 0 ? "It has issued none yet." : "No process has this in its name."}
        </p>
      ) : (
        <Scrolls label="Certificates of processes">
          <table className="issued-table names">
            <thead>
              <tr>
                <th scope="col">Process</th>
                <th scope="col">State</th>
                <th scope="col">Issued</th>
                <th scope="col">Until</th>
                <th scope="col">By</th>
              </tr>
            </thead>
            <tbody>
              {found.map((one) => (
                <Row key={one.name} one={one} shown={shown} />
              ))}
            </tbody>
          </table>
        </Scrolls>
      )}
    </section>
  );
}

function Row({ one, shown }: { one: CertificateShown; shown: CertificatesShown }) {
  const validity = validityOfIssued(one, shown);
  return (
    <tr>
      <th scope="row">
        <bdi>{one.name}</bdi>
      </th>
      <td>
        <Badge tone={toneOfValidity(validity)}>{validity === "former" ? "start it again" : validity}</Badge>
      </td>
      <td>
        <Time ms={one.issued_ms} />
      </td>
      <td>
        <Time ms={one.until_ms} />
      </td>
      <td>
        <code>{one.authority.slice(0, 8)}</code>
      </td>
    </tr>
  );
}

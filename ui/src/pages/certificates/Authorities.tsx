import type { AuthorityShown } from "../../api/schema";
import { inGroups, toneOfValidity, validityOf } from "../../model/certificates";
import { Badge } from "../../parts/Badge";
import { Copyable } from "../../parts/Copyable";
import { Time } from "../../parts/Time";

interface Props {
  /** The one that issues first. */
  readonly authorities: readonly AuthorityShown[];
  readonly nowMs: number;
}

/** Who signs, and who has signed what is still believed: by fingerprint, which people compare. */
export function Authorities({ authorities, nowMs }: Props) {
  return (
    <ul className="stack">
      {authorities.map((one) => (
        <li key={one.fingerprint} className="card">
          <Authority one={one} nowMs={nowMs} />
        </li>
      ))}
    </ul>
  );
}

function Authority({ one, nowMs }: { one: AuthorityShown; nowMs: number }) {
  const validity = validityOf(one, nowMs);
  const believedMs = one.believed_until_ms;
  return (
    <>
      <h2>
        {believedMs === null ? "Authority" : "Former authority"}{" "}
        <Badge tone={believedMs === null ? toneOfValidity(validity) : "quiet"}>
          {believedMs === null ? validity : "issues nothing"}
        </Badge>
      </h2>
      <p>
        <bdi>{one.name}</bdi>
      </p>
      <dl className="pairs">
        <div>
          <dt>Fingerprint, SHA-256</dt>
          <dd>
            <Copyable text={one.fingerprint} shown={inGroups(one.fingerprint)} />
          </dd>
        </div>
        <div>
          <dt>Valid</dt>
          <dd>
            from <Time ms={one.made_ms} /> until <Time ms={one.until_ms} />
          </dd>
        </div>
        {believedMs !== null && (
          <div>
            <dt>What it has issued is believed</dt>
            <dd>
              until <Time ms={believedMs} />
            </dd>
          </div>
        )}
      </dl>
    </>
  );
}

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { identityQuery } from "../../api/queries";
import { tokensQuery } from "../../api/tokens";
import type { IdentityShown } from "../../api/schema";
import { allows } from "../../model/access";
import { Answered } from "../../parts/Answered";
import { Notice } from "../../parts/Notice";
import { TokensTable } from "./TokensTable";
import "./tokens.css";

/** Who may ask the cluster, and for what. */
export function TokensPage() {
  const query = useQuery(identityQuery);
  return (
    <>
      <h1>Tokens</h1>
      <Answered query={query}>
        {(identity) =>
          allows(identity.scope, "admin") ? <Tokens identity={identity} /> : <NotFor identity={identity} />
        }
      </Answered>
    </>
  );
}

function Tokens({ identity }: { identity: IdentityShown }) {
  const query = useQuery(tokensQuery);
  return (
    <>
      {identity.token === "" && (
        <Notice tone="quiet">
          This cluster answers every user of its machine (<code>security.rest.authentication: none</code>):
          nobody needs one of these until it is started with <code>token</code>.
        </Notice>
      )}
      <p className="quiet">
        What is done with them stands in the <Link to="/audit">audit log</Link>.
      </p>
      <Answered query={query}>{(tokens) => <TokensTable tokens={tokens} own={identity.token} />}</Answered>
    </>
  );
}

function NotFor({ identity: { name, scope } }: { identity: IdentityShown }) {
  return (
    <p className="empty">
      Tokens are made, listed and revoked by who has the scope <code>admin</code>; you are signed in as{" "}
      <bdi>{name}</bdi>, with the scope <code>{scope}</code>.
    </p>
  );
}

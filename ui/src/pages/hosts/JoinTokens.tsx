import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { tokensQuery } from "../../api/tokens";
import type { TokenShown } from "../../api/schema";
import { count } from "../../format/numbers";
import { Scrolls } from "../../parts/Scrolls";
import { Ago, Time } from "../../parts/Time";
import { RevokeDialog } from "../tokens/RevokeDialog";
import { NewJoinDialog } from "./NewJoinDialog";

interface Props {
  /** Those with which hosts can join now. */
  readonly tokens: readonly TokenShown[];
  readonly nowMs: number | null;
}

/** With what hosts can join now, and a new one. */
export function JoinTokens({ tokens, nowMs }: Props) {
  const queries = useQueryClient();
  const [open, setOpen] = useState<"new" | TokenShown | null>(null);
  const closed = () => {
    setOpen(null);
    void queries.invalidateQueries({ queryKey: tokensQuery.queryKey });
  };
  return (
    <>
      <div>
        <button
          type="button"
          className="primary join"
          onClick={() => {
            setOpen("new");
          }}
        >
          New join token
        </button>
      </div>
      {tokens.length === 0 ? (
        <p className="empty">There is no token with which a host could join now.</p>
      ) : (
        <Scrolls label="Join tokens">
          <table className="join-table names">
            <thead>
              <tr>
                <th scope="col">Token</th>
                <th scope="col">Hosts that may still join</th>
                <th scope="col">Until</th>
                <th scope="col">Last use</th>
                <th scope="col">Changes</th>
              </tr>
            </thead>
            <tbody>
              {tokens.map((token) => (
                <tr key={token.id}>
                  <th scope="row">
                    <bdi>{token.name}</bdi>
                    <div className="quiet">
                      <code>{token.id}</code>
                    </div>
                  </th>
                  <td>{token.usesLeft === null ? "any number" : count(token.usesLeft)}</td>
                  <td>{token.expiresMs === null ? "for ever" : <Time ms={token.expiresMs} />}</td>
                  <td>
                    {token.usedMs === null ? (
                      <span className="quiet">never</span>
                    ) : (
                      <Ago ms={token.usedMs} nowMs={nowMs} />
                    )}
                  </td>
                  <td>
                    <button
                      type="button"
                      aria-label={`Revoke ${token.name}`}
                      onClick={() => {
                        setOpen(token);
                      }}
                    >
                      Revoke
                    </button>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scrolls>
      )}
      {open === "new" && <NewJoinDialog closed={closed} />}
      {open !== null && open !== "new" && <RevokeDialog token={open} isOwn={false} closed={closed} />}
    </>
  );
}

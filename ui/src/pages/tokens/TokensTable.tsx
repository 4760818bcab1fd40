import { useQueryClient } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";

import { useNowMs } from "../../api/queries";
import { tokensQuery } from "../../api/tokens";
import type { TokenShown } from "../../api/schema";
import { type TokensView, chosenTokens } from "../../model/tokens";
import { Filter } from "../../parts/Filter";
import { NoChanges } from "../../parts/NoChanges";
import { Scrolls } from "../../parts/Scrolls";
import { useMay } from "../../parts/useMay";
import { NewTokenDialog } from "./NewTokenDialog";
import { RevokeDialog } from "./RevokeDialog";
import { TokenRow } from "./TokenRow";

interface Props {
  readonly tokens: readonly TokenShown[];
  /** The id of the one that this page has. */
  readonly own: string;
}

/** The tokens that the URL chooses, and what is done with them. */
export function TokensTable({ tokens, own }: Props) {
  const view = useSearch({ from: "/tokens" });
  const navigate = useNavigate({ from: "/tokens" });
  const queries = useQueryClient();
  const nowMs = useNowMs();
  const may = useMay("admin");
  const [open, setOpen] = useState<"new" | TokenShown | null>(null);
  const change = (changes: Partial<TokensView>) => {
    void navigate({ search: (before) => ({ ...before, ...changes }), replace: true });
  };
  const shown = chosenTokens(tokens, view, nowMs);
  const closed = () => {
    setOpen(null);
    void queries.invalidateQueries({ queryKey: tokensQuery.queryKey });
  };
  return (
    <>
      <NoChanges may={may} />
      <div className="token-filters">
        <Filter
          label="With"
          text={view.q}
          change={(q) => {
            change({ q });
          }}
        />
        <label>
          <input
            type="checkbox"
            checked={view.ended}
            onChange={({ target }) => {
              change({ ended: target.checked });
            }}
          />{" "}
          also those that are taken no more
        </label>
        {may.is === "yes" && (
          <button
            type="button"
            className="primary"
            onClick={() => {
              setOpen("new");
            }}
          >
            New token
          </button>
        )}
      </div>
      {shown.length === 0 ? (
        <p className="empty">{nothing(tokens.length > 0)}</p>
      ) : (
        <Scrolls label="Tokens">
          <table className="tokens-table names">
            <thead>
              <tr>
                <th scope="col">Token</th>
                <th scope="col">Scope</th>
                <th scope="col">State</th>
                <th scope="col">Created</th>
                <th scope="col">Last use</th>
                {may.is === "yes" && <th scope="col">Changes</th>}
              </tr>
            </thead>
            <tbody>
              {shown.map((token) => (
                <TokenRow
                  key={token.id}
                  token={token}
                  isOwn={token.id === own}
                  nowMs={nowMs}
                  revoke={
                    may.is === "yes"
                      ? () => {
                          setOpen(token);
                        }
                      : null
                  }
                />
              ))}
            </tbody>
          </table>
        </Scrolls>
      )}
      {open === "new" && <NewTokenDialog closed={closed} />}
      {open !== null && open !== "new" && (
        <RevokeDialog token={open} isOwn={open.id === own} closed={closed} />
      )}
    </>
  );
}

function nothing(areSome: boolean): string {
  return areSome
    ? "No token that is taken has this in its name."
    : "There is no token. On the account of the cluster's owner nobody needs one; everybody else does.";
}

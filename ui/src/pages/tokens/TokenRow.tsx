import type { TokenShown } from "../../api/schema";
import { stateOf, toneOfToken, type TokenState } from "../../model/tokens";
import { Badge } from "../../parts/Badge";
import { Ago, Time } from "../../parts/Time";

interface Props {
  readonly token: TokenShown;
  readonly isOwn: boolean;
  readonly nowMs: number | null;
  /** Null: this page does not. */
  readonly revoke: (() => void) | null;
}

/** One token: whose, for what, until when, and whether somebody uses it. */
export function TokenRow({ token, isOwn, nowMs, revoke }: Props) {
  const state = stateOf(token, nowMs);
  return (
    <tr>
      <th scope="row">
        <bdi>{token.name}</bdi>
        <div className="quiet">
          <code>{token.id}</code>
          {isOwn && " · of this page"}
        </div>
      </th>
      <td>{token.scope}</td>
      <td>
        <Badge tone={toneOfToken(state)}>{state.is}</Badge> <When state={state} />
      </td>
      <td>
        <Time ms={token.createdMs} />
      </td>
      <td>
        {token.usedMs === null ? (
          <span className="quiet">never</span>
        ) : (
          <Ago ms={token.usedMs} nowMs={nowMs} />
        )}
      </td>
      {revoke !== null && (
        <td>
          {state.is === "taken" && (
            <button type="button" onClick={revoke} aria-label={`Revoke ${token.name}`}>
              Revoke
            </button>
          )}
        </td>
      )}
    </tr>
  );
}

function When({ state }: { state: TokenState }) {
  switch (state.is) {
    case "taken":
      return state.untilMs === null ? (
        "for ever"
      ) : (
        <>
          until <Time ms={state.untilMs} />
        </>
      );
    case "used up":
      return null;
    case "expired":
    case "revoked":
      return <Time ms={state.atMs} />;
  }
}

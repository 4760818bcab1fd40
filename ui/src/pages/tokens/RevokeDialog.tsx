import { type SyntheticEvent, useState } from "react";

import { revokeToken } from "../../api/tokens";
import type { TokenShown } from "../../api/schema";
import { Dialog } from "../../parts/Dialog";
import { Notice } from "../../parts/Notice";
import { useLeave } from "../../parts/useLeave";
import { said } from "../../api/said";

interface Props {
  readonly token: TokenShown;
  readonly isOwn: boolean;
  readonly closed: () => void;
}

/** Asks once. */
export function RevokeDialog({ token, isOwn, closed }: Props) {
  return (
    <Dialog title="Revoke a token" closed={closed}>
      <Asked token={token} isOwn={isOwn} />
    </Dialog>
  );
}

function Asked({ token, isOwn }: Omit<Props, "closed">) {
  const leave = useLeave();
  const [isSent, setIsSent] = useState(false);
  const [wrong, setWrong] = useState<string | null>(null);
  const revoke = async () => {
    setIsSent(true);
    setWrong(null);
    try {
      await revokeToken(token.id);
      leave();
    } catch (error) {
      setWrong(said(error, "It may be revoked all the same: the list says it."));
    }
    setIsSent(false);
  };
  const submit = (event: SyntheticEvent) => {
    event.preventDefault();
    if (!isSent) void revoke();
  };
  return (
    <form onSubmit={submit}>
      <p>
        <bdi>{token.name}</bdi> <code>{token.id}</code>, with the scope <code>{token.scope}</code>
      </p>
      <p>
        Everybody who has it is refused from now on, also on pages that are open. It cannot be taken back;
        another token can be made.
      </p>
      {isOwn && <Notice tone="warn">This page has it, too: you will have to sign in again.</Notice>}
      {wrong !== null && <Notice tone="bad">{wrong}</Notice>}
      <div className="confirm">
        <button type="button" onClick={leave}>
          Leave it
        </button>
        <button type="submit" className="primary ends" disabled={isSent}>
          {isSent ? "Revoking it…" : "Revoke it"}
        </button>
      </div>
    </form>
  );
}

import { Link } from "@tanstack/react-router";
import { useEffect, useRef } from "react";

import { signOut } from "../api/login";
import { session } from "../api/session";
import type { IdentityShown } from "../api/schema";
import { allows, meaningOf } from "../model/access";
import { Time } from "../parts/Time";

/** Who is signed in, for what and until when; and the way out. */
export function Account({ identity: { name, scope, expiresMs } }: { identity: IdentityShown }) {
  const menu = useRef<HTMLDetailsElement>(null);
  const isByTab = session.token() !== null;
  useEffect(() => (menu.current === null ? undefined : folding(menu.current)), []);
  return (
    <details ref={menu} className="account">
      <summary title={`Signed in as ${name}`}>
        <bdi>{name}</bdi> <span className="quiet">{scope}</span>
      </summary>
      <div className="account-menu">
        <p>
          Signed in as{" "}
          <strong>
            <bdi>{name}</bdi>
          </strong>
        </p>
        <dl>
          <dt>Scope</dt>
          <dd>
            <code>{scope}</code>: {meaningOf(scope)}
          </dd>
          <dt>Until</dt>
          <dd>{expiresMs === null ? "it is revoked" : <Time ms={expiresMs} />}</dd>
        </dl>
        {allows(scope, "admin") && (
          <nav aria-label="For admins">
            <Link to="/tokens">Tokens</Link>
            <Link to="/audit">Audit log</Link>
          </nav>
        )}
        {isByTab ? (
          <button type="button" onClick={() => void signOut()}>
            Sign out
          </button>
        ) : (
          <p className="quiet">Who stands before the JobManager has signed you in: sign out there.</p>
        )}
      </div>
    </details>
  );
}

/** Escape folds it, and so does a link in it, a click or a Tab to what is not in it. What is returned ends that. */
function folding(menu: HTMLDetailsElement): () => void {
  const end = new AbortController();
  const on = { signal: end.signal };
  menu.addEventListener(
    "keydown",
    ({ key }) => {
      if (key !== "Escape" || !menu.open) return;
      menu.open = false;
      menu.querySelector("summary")?.focus();
    },
    on,
  );
  menu.addEventListener(
    "click",
    ({ target }) => {
      if (target instanceof Element && target.closest("a") !== null) menu.open = false;
    },
    on,
  );
  const leaves = ({ target }: Event) => {
    if (target instanceof Node && !menu.contains(target)) menu.open = false;
  };
  document.addEventListener("pointerdown", leaves, on);
  document.addEventListener("focusin", leaves, on);
  return () => {
    end.abort();
  };
}

import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";

import { auditQuery } from "../../api/audit";
import { identityQuery } from "../../api/queries";
import type { IdentityShown } from "../../api/schema";
import { count } from "../../format/numbers";
import { allows } from "../../model/access";
import { type AuditView, DEPTHS, OUTCOMES } from "../../model/audit";
import { Answered } from "../../parts/Answered";
import { Filter } from "../../parts/Filter";
import { AuditTable } from "./AuditTable";
import "./audit.css";

/** Who has changed what, from where, with which outcome. */
export function AuditPage() {
  const query = useQuery(identityQuery);
  return (
    <>
      <h1>Audit log</h1>
      <Answered query={query}>
        {(identity) => (allows(identity.scope, "admin") ? <Log /> : <NotFor identity={identity} />)}
      </Answered>
    </>
  );
}

function Log() {
  const view = useSearch({ from: "/audit" });
  const query = useQuery(auditQuery(view.newest));
  return (
    <>
      <p className="quiet">
        Each request that was let in and is no mere look. Of several masters each has its own log: here is
        that of the one that leads. <Link to="/tokens">Tokens</Link> says who may ask.
      </p>
      <Filters view={view} />
      <Answered query={query}>{(entries) => <AuditTable entries={entries} view={view} />}</Answered>
    </>
  );
}

function Filters({ view }: { view: AuditView }) {
  const navigate = useNavigate({ from: "/audit" });
  const change = (changes: Partial<AuditView>) => {
    void navigate({ search: (before) => ({ ...before, ...changes }), replace: true });
  };
  return (
    <div className="audit-filters" role="search" aria-label="Entries">
      <Filter
        label="With"
        text={view.q}
        change={(q) => {
          change({ q });
        }}
      />
      <label>
        Outcome{" "}
        <select
          value={view.outcome}
          onChange={({ target }) => {
            change({ outcome: OUTCOMES.find((one) => one === target.value) ?? "all" });
          }}
        >
          {OUTCOMES.map((one) => (
            <option key={one} value={one}>
              {one}
            </option>
          ))}
        </select>
      </label>
      <label>
        Of the newest{" "}
        <select
          value={view.newest}
          onChange={({ target }) => {
            change({ newest: DEPTHS.find((one) => `${one}` === target.value) ?? DEPTHS[0] });
          }}
        >
          {DEPTHS.map((one) => (
            <option key={one} value={one}>
              {count(one)}
            </option>
          ))}
        </select>
      </label>
    </div>
  );
}

function NotFor({ identity: { name, scope } }: { identity: IdentityShown }) {
  return (
    <p className="empty">
      Who has changed what is for those with the scope <code>admin</code>; you are signed in as{" "}
      <bdi>{name}</bdi>, with the scope <code>{scope}</code>.
    </p>
  );
}

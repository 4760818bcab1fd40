import { useQuery } from "@tanstack/react-query";

import { proceduresQuery } from "../../api/clusterQueries";
import { Answered } from "../../parts/Answered";
import { Notice } from "../../parts/Notice";
import { ProcedureCard } from "./ProcedureCard";

/** Backfills and upgrades, as the commands that work on them report. */
export function ProceduresPage() {
  const query = useQuery(proceduresQuery(null));
  return (
    <>
      <h1>Backfills and upgrades</h1>
      <Answered query={query}>
        {({ procedures, now_ms, notes }) => (
          <>
            {notes.map((note) => (
              <Notice key={note} tone="warn">
                {note}
              </Notice>
            ))}
            {procedures.length === 0 && notes.length === 0 && (
              <p className="empty">
                None has been reported. <code>unistream backfill</code> computes a range of a table again,{" "}
                <code>unistream upgrade</code> replaces a job by another version; the steps of both are shown
                here.
              </p>
            )}
            {procedures.map((one) => (
              <ProcedureCard key={one.report.id} procedure={one} nowMs={now_ms} />
            ))}
          </>
        )}
      </Answered>
    </>
  );
}

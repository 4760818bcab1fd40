import { useQuery } from "@tanstack/react-query";

import { proceduresQuery } from "../../api/clusterQueries";
import { unfinished } from "../../model/procedures";
import { Notice } from "../../parts/Notice";
import { ProcedureCard } from "./ProcedureCard";

/** What is being done to a job by a command elsewhere, or was left half done. */
export function ProceduresOfJob({ job }: { job: string }) {
  const { data } = useQuery(proceduresQuery(job));
  if (data === undefined) return null;
  return (
    <>
      {data.notes.map((note) => (
        <Notice key={note} tone="warn">
          {note}
        </Notice>
      ))}
      {unfinished(data.procedures).map((one) => (
        <ProcedureCard key={one.report.id} procedure={one} nowMs={data.now_ms} />
      ))}
    </>
  );
}

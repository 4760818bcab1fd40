import { useQuery } from "@tanstack/react-query";

import { planningQuery } from "../../api/plans";
import { Answered } from "../../parts/Answered";
import { NoChanges } from "../../parts/NoChanges";
import { useMay } from "../../parts/useMay";
import { SubmitForm } from "./SubmitForm";
import "./submit.css";

/** Plans a pipeline where the cluster is, and starts it. */
export function SubmitPage() {
  const query = useQuery(planningQuery);
  const may = useMay("submit");
  return (
    <>
      <h1>Submit</h1>
      <NoChanges may={may} />
      <Answered query={query}>
        {({ enabled, folder }) => {
          if (!enabled) return <TurnedOff />;
          return may.is === "yes" ? <SubmitForm folder={folder} /> : null;
        }}
      </Answered>
    </>
  );
}

function TurnedOff() {
  return (
    <p className="empty">
      This cluster plans no pipelines by itself (<code>web.submit.enable</code>). The command{" "}
      <code>unistream run MODULE:FUNCTION</code> plans one where its code is, and submits it.
    </p>
  );
}

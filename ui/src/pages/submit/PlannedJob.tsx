import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";

import { startPlan } from "../../api/plans";
import { said } from "../../api/said";
import type { PlanShown } from "../../api/schema";
import { explainedOf } from "../../model/explained";
import { Notice } from "../../parts/Notice";
import { PipelinePlan } from "../explain/PipelinePlan";
import { StatesTable } from "./StatesTable";

/** What would be started, and the button that does it. */
export function PlannedJob({ planned }: { planned: PlanShown }) {
  const navigate = useNavigate();
  const [isSent, setIsSent] = useState(false);
  const [wrong, setWrong] = useState<string | null>(null);
  const { id, states, advice } = planned;
  const explained = explainedOf(JSON.stringify(planned.plan));
  const start = async () => {
    if (id === null) return;
    setIsSent(true);
    setWrong(null);
    try {
      await navigate({ to: "/jobs/$job", params: { job: await startPlan(id) } });
    } catch (error) {
      setWrong(said(error, "It may have been started: press the button again, and it is the same job."));
    }
    setIsSent(false);
  };
  return (
    <section aria-label="Plan">
      {typeof explained === "string" ? (
        <Notice tone="warn">{explained}</Notice>
      ) : (
        <PipelinePlan plan={explained} />
      )}
      {states !== null && <StatesTable states={states} />}
      {advice.map((sentence) => (
        <Notice key={sentence} tone="warn">
          <bdi>{sentence}</bdi>
        </Notice>
      ))}
      {wrong !== null && <Notice tone="bad">{wrong}</Notice>}
      <div className="confirm">
        <button
          type="button"
          className="primary"
          disabled={isSent || id === null}
          onClick={() => {
            void start();
          }}
        >
          {isSent ? "Starting it…" : "Start the job"}
        </button>
      </div>
    </section>
  );
}

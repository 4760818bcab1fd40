import { useState } from "react";

import { type Explained, explainedOf } from "../../model/explained";
import { Copyable } from "../../parts/Copyable";
import { Notice } from "../../parts/Notice";
import { ReadFile } from "../../parts/ReadFile";
import { PipelinePlan } from "./PipelinePlan";

/** What a pipeline would become, before anything is started. */
export function ExplainPage() {
  const [read, setRead] = useState<Explained | string | null>(null);
  return (
    <>
      <h1>Plan of a pipeline</h1>
      <ReadFile label="Plan" read={explainedOf} take={setRead} />
      {read === null && (
        <div className="empty">
          <p>
            What a pipeline becomes, before it is submitted: which operators share a task, and what they
            exchange.
          </p>
          <Copyable text="unistream explain MODULE:FUNCTION --json > plan.json" />
        </div>
      )}
      {typeof read === "string" && <Notice tone="bad">{read}</Notice>}
      {read !== null && typeof read !== "string" && <PipelinePlan plan={read} />}
    </>
  );
}

import { Suspense, lazy, useState } from "react";

import { count } from "../../format/numbers";
import { type Explained, explainedOf } from "../../model/explained";
import { Copyable } from "../../parts/Copyable";
import { Notice } from "../../parts/Notice";
import { ReadFile } from "../../parts/ReadFile";
import { ExplainedTable } from "./ExplainedTable";
import "../../parts/flow.css";

const ExplainedGraph = lazy(async () => ({
  default: (await import("./ExplainedGraph")).ExplainedGraph,
}));

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
      {read !== null && typeof read !== "string" && <Plan plan={read} />}
    </>
  );
}

function Plan({ plan }: { plan: Explained }) {
  return (
    <>
      <h2>
        <bdi>{plan.name}</bdi>
      </h2>
      <p className="quiet">
        {plan.type}, {count(plan.subtasks)} subtasks in {count(plan.regions)} regions: what restarts together.
      </p>
      <Suspense fallback={<div className="flow skeleton" role="status" aria-label="Loading" />}>
        <ExplainedGraph plan={plan} />
      </Suspense>
      <ExplainedTable plan={plan} />
    </>
  );
}

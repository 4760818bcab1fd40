import { Suspense, lazy } from "react";

import { count } from "../../format/numbers";
import type { Explained } from "../../model/explained";
import { ExplainedTable } from "./ExplainedTable";
import "../../parts/flow.css";

const ExplainedGraph = lazy(async () => ({
  default: (await import("./ExplainedGraph")).ExplainedGraph,
}));

/** What a pipeline becomes, as a graph and in words. */
export function PipelinePlan({ plan }: { plan: Explained }) {
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

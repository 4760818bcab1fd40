import { type SyntheticEvent, useRef, useState } from "react";

import { Refused } from "../../api/client";
import { planPipeline } from "../../api/plans";
import type { PlanShown } from "../../api/schema";
import { said } from "../../api/said";
import { type Draft, EMPTY_DRAFT, bodyOf } from "../../model/submission";
import { Notice } from "../../parts/Notice";
import { PlannedJob } from "./PlannedJob";
import { PipelineFields } from "./PipelineFields";

/** What is wrong, and the traceback of the user's own code. */
interface Wrong {
  readonly why: string;
  readonly frames: string;
}

/** First the plan, then the job: a field that is changed takes the plan back. */
export function SubmitForm({ folder }: { folder: string }) {
  const [draft, setDraft] = useState<Draft>(EMPTY_DRAFT);
  const [isSent, setIsSent] = useState(false);
  const [wrong, setWrong] = useState<Wrong | null>(null);
  const [plan, setPlan] = useState<PlanShown | null>(null);
  const newest = useRef(draft);
  const change = (fields: Partial<Draft>) => {
    newest.current = { ...draft, ...fields };
    setDraft(newest.current);
    setPlan(null);
    setWrong(null);
  };
  const ask = async () => {
    const body = bodyOf(draft);
    setPlan(null);
    setWrong(typeof body === "string" ? { why: body, frames: "" } : null);
    if (typeof body === "string") return;
    setIsSent(true);
    try {
      const found = await planPipeline(body);
      if (newest.current === draft) setPlan(found);
    } catch (error) {
      const [why, frames = ""] = error instanceof Refused ? error.sentences : [said(error, "Nothing runs.")];
      if (newest.current === draft) setWrong({ why: why ?? "", frames });
    }
    setIsSent(false);
  };
  const submit = (event: SyntheticEvent) => {
    event.preventDefault();
    if (!isSent) void ask();
  };
  return (
    <>
      <form className="submit-form" onSubmit={submit}>
        <PipelineFields draft={draft} folder={folder} change={change} />
        <div className="confirm">
          <button type="submit" className="primary" disabled={isSent || draft.entryPoint.trim() === ""}>
            {isSent ? "Planning it…" : "Plan it"}
          </button>
        </div>
      </form>
      {wrong !== null && (
        <Notice tone="bad">
          <bdi>{wrong.why}</bdi>
        </Notice>
      )}
      {wrong !== null && wrong.frames !== "" && <Frames text={wrong.frames} />}
      {plan !== null && <PlannedJob key={plan.id} planned={plan} />}
    </>
  );
}

function Frames({ text }: { text: string }) {
  return (
    <pre
      dir="auto"
      // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls can be reached by keyboard
      tabIndex={0}
    >
      {text}
    </pre>
  );
}

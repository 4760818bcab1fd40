import { Link } from "@tanstack/react-router";

import type { Procedure } from "../../api/schema";
import { type StepState, shownOf, titleOf } from "../../model/procedures";
import { Badge } from "../../parts/Badge";
import { Copyable } from "../../parts/Copyable";
import { Ago, Time } from "../../parts/Time";
import "./procedures.css";

const WORDS: Readonly<Record<StepState, string>> = { done: "done", now: "next", left: "not yet" };

/** One backfill or upgrade: its steps, how far it is, and what goes on with it. */
export function ProcedureCard({ procedure, nowMs }: { procedure: Procedure; nowMs: number }) {
  const { report, begun_ms, reported_ms } = procedure;
  const { state, tone, steps, says, goesOn } = shownOf(procedure, nowMs);
  return (
    <article className="card procedure" aria-label={titleOf(procedure)}>
      <div className="procedure-head">
        <Badge tone={tone}>{state}</Badge>
        <strong>
          {report.job === null ? (
            <bdi>{titleOf(procedure)}</bdi>
          ) : (
            <Link to="/jobs/$job" params={{ job: report.job }}>
              <bdi>{titleOf(procedure)}</bdi>
            </Link>
          )}
        </strong>
        <span className="quiet">
          <bdi>{report.subject}</bdi>
        </span>
        <span className="quiet procedure-when">
          begun <Time ms={begun_ms} /> · heard of <Ago ms={reported_ms} nowMs={nowMs} />
        </span>
      </div>
      <ol className="procedure-steps">
        {steps.map(({ name, state: step }) => (
          <li key={name} className={`step-${step}`} aria-current={step === "now" ? "step" : undefined}>
            {name} <span className="quiet">{WORDS[step]}</span>
          </li>
        ))}
      </ol>
      {says !== "" && (
        <p>
          <bdi>{says}</bdi>
        </p>
      )}
      {goesOn !== null && (
        <p>
          It goes on with <Copyable text={goesOn} />, where it was begun, and with the same options.
        </p>
      )}
    </article>
  );
}

import { type SyntheticEvent, useEffect, useId, useRef, useState } from "react";

import type { JobInfo } from "../../../api/schema";
import { type Action, type Subject, consequencesOf, hindranceOf } from "../../../model/actions";
import type { Wanted } from "../../../model/operations";
import { Notice } from "../../../parts/Notice";
import { RescaleFields } from "./RescaleFields";
import { StartFields } from "./StartFields";
import { UpgradeFields } from "./UpgradeFields";

interface Props {
  readonly action: Action;
  readonly subject: Subject;
  readonly job: JobInfo;
  readonly begin: (action: Action, wanted: Wanted) => void;
  readonly close: () => void;
}

/** Asks once: what will happen to rows and state, and what is wanted. */
export function ActionDialog({ action, subject, job, begin, close }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const title = useId();
  const [wanted, setWanted] = useState<Wanted | null>(firstWanted(action));
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const hindrance = hindranceOf(action, subject);
  const { confirm, isEnd, ...said } = consequencesOf(action, subject);
  const submit = (event: SyntheticEvent) => {
    event.preventDefault();
    if (wanted !== null && hindrance === null) begin(action, wanted);
  };
  return (
    <dialog ref={dialog} className="action" aria-labelledby={title} onClose={close}>
      <form onSubmit={submit}>
        <h2 id={title}>{said.title}</h2>
        <p>
          <bdi>{job.name}</bdi> <code>{job.job.slice(0, 8)}</code>
        </p>
        {hindrance === null ? (
          <>
            <dl className="consequences">
              <dt>Rows</dt>
              <dd>{said.rows}</dd>
              <dt>State</dt>
              <dd>{said.state}</dd>
              <dt>Then</dt>
              <dd>{said.then}</dd>
            </dl>
            <Fields action={action} subject={subject} job={job} change={setWanted} />
          </>
        ) : (
          <Notice tone="warn">{hindrance}</Notice>
        )}
        <div className="confirm">
          <button type="button" onClick={() => dialog.current?.close()}>
            {hindrance === null ? "Leave it" : "Close"}
          </button>
          {hindrance === null && (
            <button type="submit" className={isEnd ? "primary ends" : "primary"} disabled={wanted === null}>
              {confirm}
            </button>
          )}
        </div>
      </form>
    </dialog>
  );
}

/** What is asked for if nobody fills in anything; null: something has to be chosen. */
function firstWanted(action: Action): Wanted | null {
  return action === "rescale" || action === "upgrade" || action === "start" ? null : {};
}

interface FieldsProps extends Pick<Props, "action" | "subject" | "job"> {
  readonly change: (wanted: Wanted | null) => void;
}

function Fields({ action, subject, job, change }: FieldsProps) {
  switch (action) {
    case "savepoint":
    case "stop":
    case "drain":
      return <DirectoryField change={change} />;
    case "rescale":
      return <RescaleFields job={job.job} change={change} />;
    case "upgrade":
      return <UpgradeFields job={job.job} change={change} />;
    case "start":
      return <StartFields subject={subject} change={change} />;
    case "cancel":
      return null;
  }
}

function DirectoryField({ change }: Pick<FieldsProps, "change">) {
  const hint = useId();
  return (
    <label className="field">
      Directory of the savepoint
      <input
        type="text"
        aria-describedby={hint}
        placeholder="as configured"
        spellCheck={false}
        onChange={({ target }) => {
          const directory = target.value.trim();
          change(directory === "" ? {} : { directory });
        }}
      />
      <span id={hint} className="quiet">
        A path of the cluster or a URL of a store, such as <code>s3://bucket/savepoints</code>. Empty: where
        the job or the cluster puts them.
      </span>
    </label>
  );
}

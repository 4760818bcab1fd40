import { useId, useState } from "react";

import type { Wanted } from "../../../model/operations";
import { optionsOf, upgradeCommand } from "../../../model/upgrades";
import { Copyable } from "../../../parts/Copyable";
import { RescaleFields } from "./RescaleFields";

interface Props {
  readonly job: string;
  readonly change: (wanted: Wanted | null) => void;
}

/** Options and widths that the new job gets in place of those of the old one. */
export function UpgradeFields({ job, change }: Props) {
  const hint = useId();
  const [text, setText] = useState("");
  const [widths, setWidths] = useState<Wanted | null>(null);
  const found = optionsOf(text);
  const changed = (options: string, wider: Wanted | null) => {
    const parsed = optionsOf(options);
    setText(options);
    setWidths(wider);
    if ("wrong" in parsed) change(null);
    else if (Object.keys(parsed.config).length === 0 && wider === null) change(null);
    else change({ config: parsed.config, ...wider });
  };
  return (
    <>
      <label className="field">
        Options, one a line
        <textarea
          rows={3}
          spellCheck={false}
          aria-describedby={hint}
          placeholder="execution.checkpointing.interval: 30 s"
          value={text}
          onChange={({ target }) => {
            changed(target.value, widths);
          }}
        />
        <span id={hint} className="quiet">
          Those of <code>execution.checkpointing</code>, <code>restart-strategy</code>,{" "}
          <code>jobmanager.adaptive-scheduler</code> and <code>slot</code>; all others stay as they are.
        </span>
        {"wrong" in found && <span role="alert">{`Not an option and its value: ${found.wrong}`}</span>}
      </label>
      <RescaleFields
        job={job}
        change={(wanted) => {
          changed(text, wanted);
        }}
      />
      <p className="quiet">
        New code, and any other option, is submitted where the pipeline is:{" "}
        <Copyable text={upgradeCommand(job)} />
      </p>
    </>
  );
}

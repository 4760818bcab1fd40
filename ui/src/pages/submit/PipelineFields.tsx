import { type ReactNode, useId } from "react";

import type { Draft } from "../../model/submission";

interface Props {
  readonly draft: Draft;
  readonly folder: string;
  readonly change: (fields: Partial<Draft>) => void;
}

/** Which pipeline, and how it runs. */
export function PipelineFields({ draft, folder, change }: Props) {
  return (
    <>
      <Field
        label="Entry point"
        value={draft.entryPoint}
        set={(entryPoint) => {
          change({ entryPoint });
        }}
        required
      >
        <code>MODULE:FUNCTION</code> as of <code>unistream run</code>: of a package that is installed where
        the cluster runs, or of a module in its folder <bdi>{folder}</bdi>. It is imported in a process of its
        own.
      </Field>
      <Field
        label="Parameters"
        value={draft.parameters}
        set={(parameters) => {
          change({ parameters });
        }}
        lines
      >
        Arguments of the function besides the environment, as JSON: <code>{'{"limit": 10}'}</code>
      </Field>
      <Field
        label="Parallelism"
        value={draft.parallelism}
        set={(parallelism) => {
          change({ parallelism });
        }}
        numeric
      >
        Of operators that set none; empty: that of the cluster.
      </Field>
      <Field
        label="Name of the job"
        value={draft.name}
        set={(name) => {
          change({ name });
        }}
      >
        Empty: as the pipeline says.
      </Field>
      <Field
        label="From savepoint"
        value={draft.savepoint}
        set={(savepoint) => {
          change({ savepoint });
        }}
      >
        Directory of a savepoint or checkpoint; empty: the job begins without state.
      </Field>
      <label className="point">
        <input
          type="checkbox"
          checked={draft.allowNonRestored}
          onChange={({ target }) => {
            change({ allowNonRestored: target.checked });
          }}
        />
        <span>Drop state whose operator is gone, instead of refusing to start</span>
      </label>
      <Field
        label="Options"
        value={draft.config}
        set={(config) => {
          change({ config });
        }}
        lines
      >
        One in a line: <code>execution.checkpointing.interval=10 s</code>
      </Field>
    </>
  );
}

interface FieldProps {
  readonly label: string;
  readonly value: string;
  readonly set: (text: string) => void;
  readonly children: ReactNode;
  readonly required?: boolean;
  readonly lines?: boolean;
  readonly numeric?: boolean;
}

function Field({
  label,
  value,
  set,
  children,
  required = false,
  lines = false,
  numeric = false,
}: FieldProps) {
  const hint = useId();
  const shared = {
    value,
    required,
    autoComplete: "off",
    spellCheck: false,
    "aria-describedby": hint,
    onChange: ({ target }: { target: { value: string } }) => {
      set(target.value);
    },
  };
  return (
    <label className="field">
      {label}
      {lines ? (
        <textarea rows={3} {...shared} />
      ) : (
        <input type="text" inputMode={numeric ? "numeric" : "text"} {...shared} />
      )}
      <span id={hint} className="quiet">
        {children}
      </span>
    </label>
  );
}

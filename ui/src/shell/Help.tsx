import type { RefObject } from "react";

const KEYS = [
  ["/", "Search jobs, operators, tables and topics"],
  ["g o", "Overview"],
  ["g w", "Workers"],
  ["g c", "Cluster"],
  ["g h", "History"],
  ["g b", "Backfills and upgrades"],
  ["g p", "Plan of a pipeline"],
  ["g s", "Simulation"],
  ["g t", "Tokens"],
  ["g a", "Audit log"],
  ["g n", "Hosts"],
  ["g z", "Certificates"],
  ["?", "This help"],
  ["Esc", "Close"],
] as const;

export function Help({ dialog }: { dialog: RefObject<HTMLDialogElement | null> }) {
  return (
    <dialog ref={dialog} aria-labelledby="help-title">
      <h2 id="help-title">Keys</h2>
      <dl className="keys">
        {KEYS.map(([key, what]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <form method="dialog">
        <button type="submit">Close</button>
      </form>
    </dialog>
  );
}

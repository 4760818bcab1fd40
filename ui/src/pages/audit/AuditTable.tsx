import type { AuditEntry } from "../../api/schema";
import { count } from "../../format/numbers";
import { type AuditView, chosenEntries } from "../../model/audit";
import { Scrolls } from "../../parts/Scrolls";
import { AuditRow } from "./AuditRow";

/** As many rows as a page can have and still be quick. */
const SHOWN = 500;

interface Props {
  readonly entries: readonly AuditEntry[];
  readonly view: AuditView;
}

/** The entries that the URL chooses, the newest first. */
export function AuditTable({ entries, view }: Props) {
  const chosen = chosenEntries(entries, view);
  if (chosen.length === 0) return <p className="empty">{nothing(entries.length)}</p>;
  const shown = chosen.slice(0, SHOWN);
  return (
    <>
      <p className="quiet" role="status">
        {count(chosen.length)} of the newest {count(entries.length)}
        {shown.length < chosen.length &&
          `; the first ${count(SHOWN)} of them are here, a filter finds the others`}
      </p>
      <Scrolls label="Entries">
        <table className="audit-table names">
          <thead>
            <tr>
              <th scope="col">When</th>
              <th scope="col">Who</th>
              <th scope="col">What</th>
              <th scope="col">From</th>
              <th scope="col">Outcome</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((entry, index) => (
              // Two requests can be the same in everything; those that are there stay in their order.
              <AuditRow key={`${entry.atMs} ${entry.path} ${chosen.length - index}`} entry={entry} />
            ))}
          </tbody>
        </table>
      </Scrolls>
    </>
  );
}

function nothing(known: number): string {
  return known === 0
    ? "Nobody has changed anything yet."
    : `None of the newest ${count(known)} entries is like this. Older ones are in audit/audit.jsonl of the cluster's folder.`;
}

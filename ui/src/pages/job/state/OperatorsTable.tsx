import type { OperatorStates, StateShown } from "../../../api/schema";
import { UNKNOWN, bytes, count } from "../../../format/numbers";
import { keyOf, valueOf } from "../../../model/savepointQuery";
import { Scrolls } from "../../../parts/Scrolls";

interface Props {
  readonly operators: readonly OperatorStates[];
  /** Shows rows of a table; null: nobody may. */
  readonly onRows: ((table: string) => void) | null;
}

/** The states of each operator, in the order of the job. */
export function OperatorsTable({ operators, onRows }: Props) {
  const stateful = operators.filter(({ states }) => states.length > 0);
  const others = operators.filter(({ states }) => states.length === 0);
  if (stateful.length === 0) {
    return <p className="empty">No operator has state in this snapshot.</p>;
  }
  return (
    <>
      <Scrolls label="Operators and their states">
        <table className="names">
          <thead>
            <tr>
              <th scope="col">Operator</th>
              <th scope="col">State</th>
              <th scope="col">Kind</th>
              <th scope="col">Key</th>
              <th scope="col">Holds</th>
              <th scope="col" className="number">
                Rows
              </th>
              <th scope="col" className="number">
                Size
              </th>
              <th scope="col" className="number">
                Key groups
              </th>
            </tr>
          </thead>
          <tbody>
            {stateful.flatMap((operator) =>
              operator.states.map((state, index) => (
                <tr key={`${operator.uid} ${state.name}`}>
                  {index === 0 && <Operator operator={operator} />}
                  <State state={state} groups={operator.max_parallelism} onRows={onRows} />
                </tr>
              )),
            )}
          </tbody>
        </table>
      </Scrolls>
      {others.length > 0 && (
        <p className="quiet">
          Without state: {others.map(({ uid }, index) => [index > 0 && ", ", <bdi key={uid}>{uid}</bdi>])}.
        </p>
      )}
    </>
  );
}

function Operator({ operator }: { operator: OperatorStates }) {
  const { uid, parallelism, finished, watermark, states } = operator;
  return (
    <th scope="rowgroup" rowSpan={states.length}>
      <bdi>{uid}</bdi>
      <div className="quiet">
        {`${count(parallelism)} ×${finished > 0 ? `, ${count(finished)} finished` : ""}`}
      </div>
      {watermark?.least_ms != null && <div className="quiet">watermark {watermark.least}</div>}
    </th>
  );
}

interface StateProps {
  readonly state: StateShown;
  readonly groups: number;
  readonly onRows: Props["onRows"];
}

function State({ state, groups, onRows }: StateProps) {
  const { name, kind, rows, size, key_groups, pickled, table } = state;
  return (
    <>
      <th scope="row">
        <bdi>{name}</bdi>{" "}
        {table !== null && onRows !== null && (
          <button
            type="button"
            aria-label={`Rows of ${name}`}
            onClick={() => {
              onRows(table);
            }}
          >
            rows
          </button>
        )}
      </th>
      <td>
        {kind}
        {pickled && <div className="quiet">pickled: bytes here</div>}
      </td>
      <td>
        <bdi>{keyOf(state) ?? UNKNOWN}</bdi>
      </td>
      <td>
        <bdi>{kind === "native" ? "files that only its backend reads" : (valueOf(state) ?? UNKNOWN)}</bdi>
      </td>
      <td className="number">{count(rows)}</td>
      <td className="number">{bytes(size)}</td>
      <td className="number">{key_groups === null ? UNKNOWN : `${count(key_groups)} of ${count(groups)}`}</td>
    </>
  );
}

import { ENDED, type HistoryView } from "../../model/history";
import { Filter } from "../../parts/Filter";

interface Props {
  readonly view: HistoryView;
  readonly change: (changes: Partial<HistoryView>) => void;
}

/** By name, table, state and time; all of it is kept in the URL. */
export function HistoryFilters({ view, change }: Props) {
  return (
    <search className="history-filters">
      <Filter
        label="Name or id"
        text={view.name}
        change={(name) => {
          change({ name });
        }}
      />
      <Filter
        label="Table or topic"
        text={view.table}
        change={(table) => {
          change({ table });
        }}
      />
      {(["from", "to"] as const).map((end) => (
        <label key={end} className="filter">
          <span>{end === "from" ? "Ran from" : "to"}</span>
          <input
            type="date"
            value={view[end]}
            onChange={(event) => {
              change({ [end]: event.target.value });
            }}
          />
        </label>
      ))}
      <fieldset className="filters">
        <legend>State</legend>
        {ENDED.map((state) => (
          <label key={state}>
            <input
              type="checkbox"
              checked={view.states.includes(state)}
              onChange={({ target: { checked } }) => {
                change({
                  states: ENDED.filter((one) => (one === state ? checked : view.states.includes(one))),
                });
              }}
            />{" "}
            {state.toLowerCase()}
          </label>
        ))}
      </fieldset>
    </search>
  );
}

import { useNavigate, useSearch } from "@tanstack/react-router";

import type { OptionShown } from "../../api/schema";
import { UNKNOWN } from "../../format/numbers";
import { chosenOptions, originInWords } from "../../model/options";
import { Filter } from "../../parts/Filter";
import { Scrolls } from "../../parts/Scrolls";
import type { ClusterView } from "./view";

/** The configuration, each value with where it is from; what nobody has set is shown when it is asked for. */
export function Options({ options }: { options: readonly OptionShown[] }) {
  const view = useSearch({ from: "/cluster" });
  const navigate = useNavigate({ from: "/cluster" });
  const change = (changes: Partial<ClusterView>) => {
    void navigate({ search: (before) => ({ ...before, ...changes }), replace: true });
  };
  const shown = chosenOptions(options, view.q, view.all);
  return (
    <section aria-labelledby="configuration" className="stack">
      <h2 id="configuration">Configuration</h2>
      <div className="option-filters">
        <Filter
          label="With"
          text={view.q}
          change={(q) => {
            change({ q });
          }}
        />
        <label>
          <input
            type="checkbox"
            checked={view.all}
            onChange={(event) => {
              change({ all: event.target.checked });
            }}
          />{" "}
          also what nobody has set
        </label>
      </div>
      {shown.length === 0 ? (
        <p className="empty">
          {view.q === ""
            ? "Nothing was set: every option has its default."
            : "No option has this in its key, value or meaning."}
        </p>
      ) : (
        <Scrolls label="Options">
          <table className="options-table">
            <thead>
              <tr>
                <th scope="col">Option</th>
                <th scope="col">Value</th>
                <th scope="col">From</th>
              </tr>
            </thead>
            <tbody>
              {shown.map(({ key, value, origin, doc }) => (
                <tr key={key}>
                  <th scope="row">
                    <code>{key}</code>
                    <div className="quiet option-doc">{doc}</div>
                  </th>
                  <td className="option-value">
                    {value === null ? <span className="quiet">{UNKNOWN}</span> : <code>{value}</code>}
                  </td>
                  <td className={origin === "given" ? "" : "quiet"}>{originInWords(origin)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scrolls>
      )}
    </section>
  );
}

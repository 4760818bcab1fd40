import { duration } from "../../format/times";
import { type Lane, type Range, rowsOf } from "../../model/timeline";
import { Badge } from "../../parts/Badge";
import { Time } from "../../parts/Time";
import { Scrolls } from "../../parts/Scrolls";

const ROWS = 500;

/** What the picture shows, in words; the newest first. */
export function TimelineTable({ lanes, range }: { lanes: readonly Lane[]; range: Range }) {
  const rows = rowsOf(lanes, range, ROWS).reverse();
  return (
    <details className="timeline-table">
      <summary>
        As a table
        {rows.length === ROWS ? `: the newest ${ROWS} of this time` : `: ${rows.length} of this time`}
      </summary>
      <Scrolls label="Timeline">
        <table>
          <thead>
            <tr>
              <th scope="col">When</th>
              <th scope="col">Of</th>
              <th scope="col">What</th>
              <th scope="col" className="number">
                Lasted
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row, index) => (
              <tr key={`${index} ${row.fromMs} ${row.lane}`}>
                <td>
                  <Time ms={row.fromMs} />
                </td>
                <th scope="row">
                  <bdi>{row.lane}</bdi>
                </th>
                <td className="what">
                  <Badge tone={row.tone}>
                    <bdi>{row.text}</bdi>
                  </Badge>
                </td>
                <td className="number">{row.toMs > row.fromMs ? duration(row.toMs - row.fromMs) : ""}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scrolls>
    </details>
  );
}

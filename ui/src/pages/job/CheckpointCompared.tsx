import type { CheckpointFigures } from "../../api/schema";
import { bytes, count } from "../../format/numbers";
import { duration } from "../../format/times";
import { type Difference, comparedOf } from "../../model/checkpointsCompared";
import { Scrolls } from "../../parts/Scrolls";

/** Two snapshots side by side: what has become slower, or larger. */
export function CheckpointCompared({ one, other }: { one: CheckpointFigures; other: CheckpointFigures }) {
  return (
    <Scrolls label="Two checkpoints compared">
      <table>
        <thead>
          <tr>
            <th scope="col">Figure</th>
            <th scope="col" className="number">
              {one.checkpoint_id}
            </th>
            <th scope="col" className="number">
              {other.checkpoint_id}
            </th>
            <th scope="col" className="number">
              Difference
            </th>
          </tr>
        </thead>
        <tbody>
          {comparedOf(one, other).map((row) => (
            <tr key={row.what}>
              <th scope="row">
                <bdi>{row.what}</bdi>
              </th>
              <td className="number">{shown(row, row.one)}</td>
              <td className="number">{shown(row, row.other)}</td>
              <td className="number">{difference(row)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scrolls>
  );
}

function shown({ unit }: Difference, value: number): string {
  switch (unit) {
    case "ms":
      return duration(value);
    case "bytes":
      return bytes(value);
    case "count":
      return count(value);
  }
}

/** Of the first to the second; equal ones have none. */
function difference(row: Difference): string {
  const by = row.one - row.other;
  return by === 0 ? "" : `${by < 0 ? "−" : "+"}${shown(row, Math.abs(by))}`;
}

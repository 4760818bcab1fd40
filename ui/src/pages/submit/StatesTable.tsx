import type { StatesPlanned } from "../../api/schema";
import { count } from "../../format/numbers";
import { toneOf } from "../../model/submission";
import { Badge } from "../../parts/Badge";
import { Notice } from "../../parts/Notice";
import { Scrolls } from "../../parts/Scrolls";

/** What happens to each state of the savepoint. */
export function StatesTable({ states: { refused, operators, problems } }: { states: StatesPlanned }) {
  return (
    <>
      <h2>States of the savepoint</h2>
      <Notice tone={refused ? "bad" : "good"}>
        {refused ? "The job cannot start from it." : "The job can start from it."}
      </Notice>
      {problems.map((problem) => (
        <Notice key={problem} tone="bad">
          <bdi>{problem}</bdi>
        </Notice>
      ))}
      <Scrolls label="States">
        <table>
          <thead>
            <tr>
              <th scope="col">Operator</th>
              <th scope="col">State</th>
              <th scope="col">Rows</th>
              <th scope="col">Outcome</th>
              <th scope="col">Why</th>
            </tr>
          </thead>
          {operators.map(({ uid, fate, why, states }) => (
            <tbody key={uid}>
              <tr>
                <th scope="row" colSpan={3}>
                  <bdi>{uid}</bdi>
                </th>
                <td>
                  <Badge tone={toneOf(fate)}>{fate}</Badge>
                </td>
                <td>
                  <bdi>{why}</bdi>
                </td>
              </tr>
              {states.map((one) => (
                <tr key={one.state}>
                  <td />
                  <td>
                    <bdi>{one.state}</bdi>
                  </td>
                  <td className="number">{one.rows === null ? "" : count(one.rows)}</td>
                  <td>
                    <Badge tone={toneOf(one.fate)}>{one.fate}</Badge>
                  </td>
                  <td>
                    <bdi>{one.why}</bdi>
                  </td>
                </tr>
              ))}
            </tbody>
          ))}
        </table>
      </Scrolls>
    </>
  );
}

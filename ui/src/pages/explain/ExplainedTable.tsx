import { count } from "../../format/numbers";
import type { Explained, ExplainedInput } from "../../model/explained";
import { Scrolls } from "../../parts/Scrolls";

/** The same in words, with the uids and what keeps operators apart. */
export function ExplainedTable({ plan: { vertices } }: { plan: Explained }) {
  const names = new Map(vertices.map(({ id, name }) => [id, name]));
  return (
    <Scrolls label="Vertices">
      <table>
        <thead>
          <tr>
            <th scope="col">Vertex</th>
            <th scope="col">Subtasks</th>
            <th scope="col">Slot sharing group</th>
            <th scope="col">Operators, with their uids</th>
            <th scope="col">Reads</th>
          </tr>
        </thead>
        <tbody>
          {vertices.map((vertex) => (
            <tr key={vertex.id}>
              <th scope="row">
                <bdi>{vertex.name}</bdi>
              </th>
              <td>
                {count(vertex.parallelism)}{" "}
                <span className="quiet">of at most {count(vertex.maxParallelism)}</span>
              </td>
              <td>
                <bdi>{vertex.slotSharingGroup}</bdi>
              </td>
              <td>
                {vertex.operators.map(({ name, uid }) => (
                  <div key={uid}>
                    <bdi>{name}</bdi> <span className="quiet">{uid}</span>
                  </div>
                ))}
              </td>
              <td>
                {vertex.inputs.map((input, index) => (
                  <Input key={`${input.id} ${index}`} input={input} name={names.get(input.id) ?? input.id} />
                ))}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scrolls>
  );
}

function Input({ input: { ship, exchange, obstacle }, name }: { input: ExplainedInput; name: string }) {
  return (
    <div>
      <bdi>{name}</bdi>{" "}
      <span className="quiet">
        {ship}, {exchange}
        {obstacle !== "" && ` (no shared task: ${obstacle})`}
      </span>
    </div>
  );
}

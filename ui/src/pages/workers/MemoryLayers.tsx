import type { TaskManagerInfo } from "../../api/schema";
import { bytes, percent } from "../../format/numbers";
import { layersOf } from "../../model/workers";
import { Scrolls } from "../../parts/Scrolls";

const WHAT: Readonly<Record<string, string>> = {
  process: "all of it: what a container has to give",
  flink: "without the overhead",
  framework: "the worker itself",
  task: "user code, and what operators hold while they work",
  network: "batches that wait between tasks",
  managed: "what operators may fill before they spill",
  overhead: "interpreter, libraries, threads, slack of allocators",
};

/** What each layer may have, and has where that is known. */
export function MemoryLayers({ worker }: { worker: TaskManagerInfo }) {
  const layers = layersOf(worker);
  if (layers.length === 0) return <p className="quiet">It has not said yet how its memory is divided.</p>;
  return (
    <Scrolls label="Memory">
      <table className="layers">
        <caption>Memory</caption>
        <thead>
          <tr>
            <th scope="col">Layer</th>
            <th scope="col" className="number">
              May have
            </th>
            <th scope="col" className="number">
              Has
            </th>
            <th scope="col" className="number">
              Part
            </th>
          </tr>
        </thead>
        <tbody>
          {layers.map(({ name, depth, planned, used, part }) => (
            <tr key={name}>
              <th scope="row" className={`depth-${depth}`}>
                {name} <span className="quiet layer-what">{WHAT[name]}</span>
              </th>
              <td className="number">{bytes(planned)}</td>
              <td className="number">{bytes(used)}</td>
              <td className="number">
                {part !== null && <meter min={0} max={1} high={0.8} optimum={0} value={Math.min(1, part)} />}{" "}
                {percent(part)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scrolls>
  );
}

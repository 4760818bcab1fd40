import type { Explained } from "../../model/explained";
import { FlowGraph } from "../../parts/FlowGraph";

/** Vertices, and how rows go from one to the next. */
export function ExplainedGraph({ plan: { vertices } }: { plan: Explained }) {
  const inputs = new Map(
    vertices.flatMap(({ id, inputs }) => inputs.map((input) => [`${input.id} ${id}`, input])),
  );
  return (
    <FlowGraph
      label="Graph of the pipeline; the table below says the same"
      nodes={vertices.map(({ id, name, parallelism, slotSharingGroup, inputs: reads }) => ({
        id,
        reads: [...new Set(reads.map((input) => input.id))],
        name,
        small: slotSharingGroup === "" ? `${parallelism} ×` : `${parallelism} × · ${slotSharingGroup}`,
        title: name,
        look: "",
      }))}
      edge={(source, { id }) => {
        const input = inputs.get(`${source} ${id}`);
        return input === undefined ? {} : { label: input.ship };
      }}
    />
  );
}

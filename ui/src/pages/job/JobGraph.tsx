import "@xyflow/react/dist/style.css";

import {
  Background,
  Controls,
  type Edge,
  Handle,
  type Node,
  type NodeProps,
  Position,
  ReactFlow,
} from "@xyflow/react";
import { percent, rate } from "../../format/numbers";
import { toneOfVertex } from "../../model/states";
import { type Vertex, pressure } from "../../model/vertices";
import { usePlaces } from "../../parts/usePlaces";
import "../../parts/flow.css";

interface Shown extends Record<string, unknown> {
  readonly vertex: Vertex;
  readonly isBottleneck: boolean;
  readonly isChosen: boolean;
}

interface Props {
  readonly vertices: readonly Vertex[];
  readonly rates: ReadonlyMap<string, number | null>;
  readonly bottleneck: string | null;
  readonly chosen: string | null;
  readonly choose: (vertex: string) => void;
}

const TYPES = { vertex: VertexNode };

/** The vertices and what flows between them; edges have the colour of what holds their source back. */
export function JobGraph({ vertices, rates, bottleneck, chosen, choose }: Props) {
  const places = usePlaces(vertices);
  if (places === null) return <div className="graph skeleton" role="status" aria-label="Laying out" />;
  const nodes = vertices.map((vertex): Node<Shown> => ({
    id: vertex.id,
    type: "vertex",
    position: places.get(vertex.id) ?? { x: 0, y: 0 },
    data: { vertex, isBottleneck: vertex.id === bottleneck, isChosen: vertex.id === chosen },
    ariaLabel: vertex.name,
  }));
  const byId = new Map(vertices.map((vertex) => [vertex.id, vertex]));
  const edges = vertices.flatMap((vertex) =>
    vertex.reads.map((source): Edge => {
      const flow = rates.get(`${source} out`) ?? null;
      return {
        id: `${source}-${vertex.id}`,
        source,
        target: vertex.id,
        label: rate(flow),
        animated: flow !== null && flow > 0,
        className: `edge-${pressure(byId.get(source)?.heldBack ?? 0)}`,
      };
    }),
  );
  return (
    <div className="graph" role="group" aria-label="Graph of the job; the table below says the same">
      <ReactFlow
        nodes={nodes}
        edges={edges}
        nodeTypes={TYPES}
        fitView
        minZoom={0.1}
        nodesDraggable={false}
        nodesConnectable={false}
        onlyRenderVisibleElements
        onNodeClick={(_event, { id }) => {
          choose(id);
        }}
        proOptions={{ hideAttribution: false }}
      >
        <Background />
        <Controls showInteractive={false} />
      </ReactFlow>
    </div>
  );
}

function VertexNode({ data: { vertex, isBottleneck, isChosen } }: NodeProps<Node<Shown>>) {
  const tone = toneOfVertex(vertex.states);
  return (
    <div
      className={`vertex tone-edge-${tone}${isBottleneck ? " is-bottleneck" : ""}${isChosen ? " is-chosen" : ""}`}
      title={vertex.name}
    >
      <Handle type="target" position={Position.Left} isConnectable={false} />
      <strong>
        <bdi>{vertex.name}</bdi>
      </strong>
      <span className="quiet">
        {vertex.parallelism} × · busy {percent(vertex.busy)}
      </span>
      <span className="meter" aria-hidden="true">
        <span style={{ width: `${vertex.busy * 100}%` }} />
      </span>
      <Handle type="source" position={Position.Right} isConnectable={false} />
    </div>
  );
}

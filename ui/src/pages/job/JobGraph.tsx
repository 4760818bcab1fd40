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
  ReactFlowProvider,
} from "@xyflow/react";
import { useMemo } from "react";

import { percent, rate } from "../../format/numbers";
import { toneOfVertex } from "../../model/states";
import { type Vertex, pressure } from "../../model/vertices";
import { NODE, type Place } from "../../parts/layout";
import { useIsFar } from "../../parts/useIsFar";
import { useIsNarrow } from "../../parts/useIsNarrow";
import { usePlaces } from "../../parts/usePlaces";
import "../../parts/flow.css";

interface Shown extends Record<string, unknown> {
  readonly vertex: Vertex;
  readonly isBottleneck: boolean;
  readonly isChosen: boolean;
  readonly isFar: boolean;
  readonly isNarrow: boolean;
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
export function JobGraph(props: Props) {
  const isNarrow = useIsNarrow();
  const places = usePlaces(props.vertices, isNarrow);
  if (places === null) return <div className="graph skeleton" role="status" aria-label="Laying out" />;
  return (
    <div className="graph" role="group" aria-label="Graph of the job; the table below says the same">
      <ReactFlowProvider key={isNarrow ? "down" : "right"}>
        <Drawn {...props} places={places} isNarrow={isNarrow} />
      </ReactFlowProvider>
    </div>
  );
}

interface DrawnProps extends Props {
  readonly places: ReadonlyMap<string, Place>;
  readonly isNarrow: boolean;
}

function Drawn({ vertices, rates, bottleneck, chosen, choose, places, isNarrow }: DrawnProps) {
  const isFar = useIsFar();
  const nodes = useMemo(
    () =>
      vertices.map((vertex): Node<Shown> => ({
        id: vertex.id,
        type: "vertex",
        position: places.get(vertex.id) ?? { x: 0, y: 0 },
        ...NODE,
        data: {
          vertex,
          isBottleneck: vertex.id === bottleneck,
          isChosen: vertex.id === chosen,
          isFar,
          isNarrow,
        },
        ariaLabel: vertex.name,
      })),
    [vertices, places, bottleneck, chosen, isFar, isNarrow],
  );
  const flows = isFar ? null : rates; // what changes each second, and is not shown from afar
  const edges = useMemo(() => edgesOf(vertices, flows), [vertices, flows]);
  return (
    <ReactFlow
      nodes={nodes}
      edges={edges}
      nodeTypes={TYPES}
      fitView
      fitViewOptions={{ maxZoom: 1 }}
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
  );
}

/** `rates` null: without what flows. */
function edgesOf(vertices: readonly Vertex[], rates: Props["rates"] | null): Edge[] {
  const byId = new Map(vertices.map((vertex) => [vertex.id, vertex]));
  return vertices.flatMap((vertex) =>
    vertex.reads.map((source): Edge => {
      const edge = {
        id: `${source}-${vertex.id}`,
        source,
        target: vertex.id,
        className: `edge-${pressure(byId.get(source)?.heldBack ?? 0)}`,
      };
      if (rates === null) return edge;
      const flow = rates.get(`${source} out`) ?? null;
      return { ...edge, label: rate(flow), animated: flow !== null && flow > 0 };
    }),
  );
}

function VertexNode({ data: { vertex, isBottleneck, isChosen, isFar, isNarrow } }: NodeProps<Node<Shown>>) {
  const tone = toneOfVertex(vertex.states);
  return (
    <div
      className={`vertex tone-edge-${tone}${isBottleneck ? " is-bottleneck" : ""}${isChosen ? " is-chosen" : ""}${isFar ? " is-far" : ""}`}
      title={vertex.name}
    >
      <Handle type="target" position={isNarrow ? Position.Top : Position.Left} isConnectable={false} />
      {!isFar && (
        <>
          <strong>
            <bdi>{vertex.name}</bdi>
          </strong>
          <span className="quiet">
            {vertex.parallelism} × · busy {percent(vertex.busy)}
          </span>
          <span className="meter" aria-hidden="true">
            <span style={{ width: `${vertex.busy * 100}%` }} />
          </span>
        </>
      )}
      <Handle type="source" position={isNarrow ? Position.Bottom : Position.Right} isConnectable={false} />
    </div>
  );
}

import "@xyflow/react/dist/style.css";

import {
  Background,
  Controls,
  type Edge,
  Handle,
  type Node,
  type NodeMouseHandler,
  type NodeProps,
  Position,
  ReactFlow,
  ReactFlowProvider,
} from "@xyflow/react";
import { useCallback, useMemo } from "react";

import { percent, rate } from "../../format/numbers";
import { type Tone, toneOfVertex } from "../../model/states";
import type { Place } from "../../model/layered";
import { type Vertex, pressure } from "../../model/vertices";
import { NODE } from "../../parts/layout";
import { useIsFar } from "../../parts/useIsFar";
import { useIsNarrow } from "../../parts/useIsNarrow";
import { useSame } from "../../parts/useSame";
import { usePlaces } from "../../parts/usePlaces";
import "../../parts/flow.css";

/** What is seen of a vertex. `small`: null from afar. */
interface Look {
  readonly id: string;
  readonly name: string;
  readonly tone: Tone;
  readonly small: string | null;
  readonly busy: number;
}

interface Shown extends Record<string, unknown> {
  readonly look: Look;
  readonly isBottleneck: boolean;
  readonly isChosen: boolean;
  readonly isNarrow: boolean;
}

interface Props {
  readonly vertices: readonly Vertex[];
  readonly rates: ReadonlyMap<string, number | null>;
  readonly bottleneck: string | null;
  readonly chosen: string | null;
  readonly choose: (vertex: string) => void;
}

const FIT = { maxZoom: 1 };
const TYPES = { vertex: VertexNode };

/** The vertices and what flows between them; edges have the colour of what holds their source back. */
export function JobGraph(props: Props) {
  const isNarrow = useIsNarrow();
  const places = usePlaces(props.vertices, isNarrow);
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
  // What changes each second is not shown from afar: then the library has nothing to compare, measure and draw.
  const looks = useSame(vertices.map((vertex) => lookOf(vertex, isFar)));
  const nodes = useMemo(
    () =>
      looks.map((look): Node<Shown> => ({
        id: look.id,
        type: "vertex",
        position: places.get(look.id) ?? { x: 0, y: 0 },
        ...NODE,
        data: { look, isBottleneck: look.id === bottleneck, isChosen: look.id === chosen, isNarrow },
        ariaLabel: look.name,
      })),
    [looks, places, bottleneck, chosen, isNarrow],
  );
  const edges = useSame(edgesOf(vertices, isFar ? null : rates));
  // The very same each time, or every node is drawn again.
  const onClick = useCallback<NodeMouseHandler<Node<Shown>>>(
    (_event, { id }) => {
      choose(id);
    },
    [choose],
  );
  return (
    <ReactFlow
      nodes={nodes}
      edges={edges}
      nodeTypes={TYPES}
      fitView
      fitViewOptions={FIT}
      minZoom={0.1}
      nodesDraggable={false}
      nodesConnectable={false}
      onlyRenderVisibleElements
      onNodeClick={onClick}
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

function lookOf({ id, name, states, parallelism, busy }: Vertex, isFar: boolean): Look {
  const tone = toneOfVertex(states);
  if (isFar) return { id, name, tone, small: null, busy: 0 };
  return { id, name, tone, small: `${parallelism} × · busy ${percent(busy)}`, busy };
}

function VertexNode({ data: { look, isBottleneck, isChosen, isNarrow } }: NodeProps<Node<Shown>>) {
  const { name, tone, small, busy } = look;
  return (
    <div
      className={`vertex tone-edge-${tone}${isBottleneck ? " is-bottleneck" : ""}${isChosen ? " is-chosen" : ""}${small === null ? " is-far" : ""}`}
      title={name}
    >
      <Handle type="target" position={isNarrow ? Position.Top : Position.Left} isConnectable={false} />
      {small !== null && (
        <>
          <strong>
            <bdi>{name}</bdi>
          </strong>
          <span className="quiet">{small}</span>
          <span className="meter" aria-hidden="true">
            <span style={{ width: `${busy * 100}%` }} />
          </span>
        </>
      )}
      <Handle type="source" position={isNarrow ? Position.Bottom : Position.Right} isConnectable={false} />
    </div>
  );
}

import "@xyflow/react/dist/style.css";

import {
  Background,
  type Edge,
  Handle,
  type Node,
  type NodeMouseHandler,
  type NodeProps,
  Position,
  ReactFlow,
  ReactFlowProvider,
} from "@xyflow/react";

import type { Place } from "../model/layered";
import { NODE } from "./layout";
import { useIsFar } from "./useIsFar";
import { useIsNarrow } from "./useIsNarrow";
import { usePlaces } from "./usePlaces";
import "./flow.css";

export interface FlowNode {
  readonly id: string;
  /** The nodes whose rows it takes. */
  readonly reads: readonly string[];
  readonly name: string;
  readonly small: string;
  readonly title: string;
  readonly look: string;
}

export interface FlowEdge {
  readonly label?: string;
  readonly moves?: boolean;
}

interface Shown extends Record<string, unknown> {
  readonly node: FlowNode;
  readonly isFar: boolean;
  readonly isNarrow: boolean;
}

interface Props {
  readonly label: string;
  readonly nodes: readonly FlowNode[];
  readonly edge: (source: string, target: FlowNode) => FlowEdge;
  readonly open?: (id: string) => void;
}

const FIT = { maxZoom: 1 };
const TYPES = { flow: Box };

/** Boxes and what flows between them, from left to right. Every picture has a list or table that says the same. */
export function FlowGraph(props: Props) {
  const isNarrow = useIsNarrow();
  const places = usePlaces(props.nodes, isNarrow);
  return (
    <div className="flow" role="group" aria-label={props.label}>
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

function Drawn({ nodes, edge, open, places, isNarrow }: DrawnProps) {
  const isFar = useIsFar();
  const boxes = nodes.map((node): Node<Shown> => ({
    id: node.id,
    type: "flow",
    position: places.get(node.id) ?? { x: 0, y: 0 },
    ...NODE,
    data: { node, isFar, isNarrow },
    ariaLabel: node.name,
  }));
  const edges = nodes.flatMap((node) =>
    node.reads.map((source): Edge => {
      const one = { id: `${source} ${node.id}`, source, target: node.id };
      if (isFar) return one;
      const { label: text, moves } = edge(source, node);
      return { ...one, animated: moves === true, ...(text === undefined ? {} : { label: text }) };
    }),
  );
  const onClick: NodeMouseHandler<Node<Shown>> = (_event, { id }) => {
    open?.(id);
  };
  return (
    <ReactFlow
      nodes={boxes}
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
    </ReactFlow>
  );
}

function Box({ data: { node, isFar, isNarrow } }: NodeProps<Node<Shown>>) {
  return (
    <div className={`flow-box ${node.look}${isFar ? " is-far" : ""}`} title={node.title}>
      <Handle type="target" position={isNarrow ? Position.Top : Position.Left} isConnectable={false} />
      {!isFar && (
        <>
          <strong>
            <bdi>{node.name}</bdi>
          </strong>
          <span className="quiet">{node.small}</span>
        </>
      )}
      <Handle type="source" position={isNarrow ? Position.Bottom : Position.Right} isConnectable={false} />
    </div>
  );
}

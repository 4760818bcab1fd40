import "@xyflow/react/dist/style.css";

import { Background, type Edge, Handle, type Node, type NodeProps, Position, ReactFlow } from "@xyflow/react";

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
}

interface Props {
  readonly label: string;
  readonly nodes: readonly FlowNode[];
  readonly edge: (source: string, target: FlowNode) => FlowEdge;
  readonly open?: (id: string) => void;
}

const TYPES = { flow: Box };

/** Boxes and what flows between them, from left to right. Every picture has a list or table that says the same. */
export function FlowGraph({ label, nodes, edge, open }: Props) {
  const places = usePlaces(nodes);
  if (places === null) return <div className="flow skeleton" role="status" aria-label="Laying out" />;
  const boxes = nodes.map((node): Node<Shown> => ({
    id: node.id,
    type: "flow",
    position: places.get(node.id) ?? { x: 0, y: 0 },
    data: { node },
    ariaLabel: node.name,
  }));
  const edges = nodes.flatMap((node) =>
    node.reads.map((source): Edge => {
      const { label: text, moves } = edge(source, node);
      const one = { id: `${source} ${node.id}`, source, target: node.id, animated: moves === true };
      return text === undefined ? one : { ...one, label: text };
    }),
  );
  return (
    <div className="flow" role="group" aria-label={label}>
      <ReactFlow
        nodes={boxes}
        edges={edges}
        nodeTypes={TYPES}
        fitView
        fitViewOptions={{ maxZoom: 1 }}
        minZoom={0.1}
        nodesDraggable={false}
        nodesConnectable={false}
        onlyRenderVisibleElements
        onNodeClick={(_event, { id }) => {
          open?.(id);
        }}
      >
        <Background />
      </ReactFlow>
    </div>
  );
}

function Box({ data: { node } }: NodeProps<Node<Shown>>) {
  return (
    <div className={`flow-box ${node.look}`} title={node.title}>
      <Handle type="target" position={Position.Left} isConnectable={false} />
      <strong>
        <bdi>{node.name}</bdi>
      </strong>
      <span className="quiet">{node.small}</span>
      <Handle type="source" position={Position.Right} isConnectable={false} />
    </div>
  );
}

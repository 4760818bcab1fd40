import { type EdgeLabel, Graph, type GraphLabel, type NodeLabel, layout } from "@dagrejs/dagre";

import { type Place, type Placed, connectedParts, layered, packed } from "../model/layered";

/** Of each node, so that nothing has to be measured. */
export const NODE = { width: 240, height: 76 } as const;

const ACROSS = 32;
const along = (downwards: boolean) => (downwards ? 48 : 96);

/** From here on nobody looks at a single crossing, and the page would stand still for longer than somebody notices. */
const LARGE = 80;
/** Graphs that somebody goes back to. */
const KEPT = 8;

type Places = ReadonlyMap<string, Place>;

const kept = new Map<string, Places>();

/** Layers from left to right, or downwards, as rows flow. `shape`: JSON of a list of [id, ids of what it reads]. */
export function placesOf(shape: string, downwards: boolean): Places {
  const key = `${downwards} ${shape}`;
  const places = kept.get(key) ?? measured(shape, downwards);
  kept.delete(key);
  kept.set(key, places);
  for (const oldest of [...kept.keys()].slice(0, -KEPT)) kept.delete(oldest);
  return places;
}

/** What it has taken is in the browser's own record of times. */
function measured(shape: string, downwards: boolean): Places {
  const start = performance.now();
  const nodes = (JSON.parse(shape) as [string, string[]][]).map(([id, reads]) => ({ id, reads }));
  const places = nodes.length > LARGE ? quickly(nodes, downwards) : carefully(nodes, downwards);
  performance.measure("graph laid out", { start });
  return places;
}

function quickly(nodes: readonly Placed[], downwards: boolean): Places {
  const { width, height } = NODE;
  const [length, breadth] = downwards ? [height, width] : [width, height];
  const places = layered(nodes, { along: length + along(downwards), across: breadth + ACROSS });
  return downwards ? new Map([...places].map(([id, { x, y }]) => [id, { x: y, y: x }])) : places;
}

/** With few crossings. Parts that are not connected are laid out one by one: the library would pile them up. */
function carefully(nodes: readonly Placed[], downwards: boolean): Places {
  const parts = connectedParts(nodes).map((part) => {
    const { places, width, height } = partOf(part, downwards);
    const [length, breadth] = downwards ? [height, width] : [width, height];
    return { of: places, along: length + along(downwards), across: breadth + ACROSS };
  });
  return new Map(
    packed(parts, { along: 1, across: 1 }).flatMap(({ of: places, along: length, across }) =>
      places.map(([id, { x, y }]): [string, Place] => [
        id,
        downwards ? { x: x + across, y: y + length } : { x: x + length, y: y + across },
      ]),
    ),
  );
}

interface LaidOut {
  readonly places: readonly [string, Place][];
  readonly width: number;
  readonly height: number;
}

/** The library keeps nodes as fields of an object, so it gets numbers for names, which may be `__proto__`. */
function partOf(part: readonly Placed[], downwards: boolean): LaidOut {
  const graph = new Graph<GraphLabel, NodeLabel, EdgeLabel>();
  graph.setGraph({ rankdir: downwards ? "TB" : "LR", nodesep: ACROSS, ranksep: along(downwards) });
  const numbers = new Map(part.map(({ id }, number) => [id, `${number}`]));
  const numberOf = (id: string) => numbers.get(id) ?? "";
  for (const { id } of part) graph.setNode(numberOf(id), { ...NODE });
  for (const { id, reads } of part) {
    for (const source of reads) graph.setEdge(numberOf(source), numberOf(id), {});
  }
  layout(graph);
  const { width = 0, height = 0 } = graph.graph();
  const places = part.map(({ id }): [string, Place] => {
    const { x = 0, y = 0 } = graph.node(numberOf(id)); // its middle
    return [id, { x: x - NODE.width / 2, y: y - NODE.height / 2 }];
  });
  return { places, width, height };
}

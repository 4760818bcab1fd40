import ELK from "elkjs/lib/elk-api";

export interface Place {
  readonly x: number;
  readonly y: number;
}

/** Of each node, so that nothing has to be measured. */
export const NODE = { width: 240, height: 76 } as const;

/** From here on nobody looks at a single crossing, and a second is too long to wait. */
const LARGE = 150;
const QUICK = {
  "elk.layered.thoroughness": "1",
  "elk.layered.nodePlacement.strategy": "SIMPLE",
  "elk.edgeRouting": "POLYLINE", // the page draws its own lines
} as const;

const elk = new ELK({
  workerFactory: () =>
    new Worker(new URL("elkjs/lib/elk-worker.min.js", import.meta.url), { type: "module" }),
});

/** Layers from left to right, or downwards, as rows flow; computed in a worker, so that the page stays quick. */
export async function laidOut(
  vertices: readonly { readonly id: string; readonly reads: readonly string[] }[],
  downwards: boolean,
): Promise<ReadonlyMap<string, Place>> {
  const graph = await elk.layout({
    id: "job",
    layoutOptions: {
      "elk.algorithm": "layered",
      "elk.direction": downwards ? "DOWN" : "RIGHT",
      "elk.layered.spacing.nodeNodeBetweenLayers": downwards ? "48" : "96",
      "elk.spacing.nodeNode": "32",
      ...(vertices.length > LARGE ? QUICK : {}),
    },
    children: vertices.map(({ id }) => ({ id, ...NODE })),
    edges: vertices.flatMap(({ id, reads }) =>
      reads.map((source) => ({ id: `${source}-${id}`, sources: [source], targets: [id] })),
    ),
  });
  return new Map((graph.children ?? []).map(({ id, x, y }) => [id, { x: x ?? 0, y: y ?? 0 }]));
}

import ELK from "elkjs/lib/elk-api";

export interface Place {
  readonly x: number;
  readonly y: number;
}

const NODE = { width: 240, height: 76 } as const;

const elk = new ELK({
  workerFactory: () =>
    new Worker(new URL("elkjs/lib/elk-worker.min.js", import.meta.url), { type: "module" }),
});

/** Layers from left to right, as rows flow; computed in a worker, so that the page stays quick. */
export async function laidOut(
  vertices: readonly { readonly id: string; readonly reads: readonly string[] }[],
): Promise<ReadonlyMap<string, Place>> {
  const graph = await elk.layout({
    id: "job",
    layoutOptions: {
      "elk.algorithm": "layered",
      "elk.direction": "RIGHT",
      "elk.layered.spacing.nodeNodeBetweenLayers": "96",
      "elk.spacing.nodeNode": "32",
    },
    children: vertices.map(({ id }) => ({ id, ...NODE })),
    edges: vertices.flatMap(({ id, reads }) =>
      reads.map((source) => ({ id: `${source}-${id}`, sources: [source], targets: [id] })),
    ),
  });
  return new Map((graph.children ?? []).map(({ id, x, y }) => [id, { x: x ?? 0, y: y ?? 0 }]));
}

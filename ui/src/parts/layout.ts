import ELK from "elkjs/lib/elk-api";
import type { ELK as Elk } from "elkjs/lib/elk-api";

import { type Place, type Placed, layered } from "../model/layered";

/** Of each node, so that nothing has to be measured. */
export const NODE = { width: 240, height: 76 } as const;

const ACROSS = 32;
const along = (downwards: boolean) => (downwards ? 48 : 96);

/**
 * From here on nobody looks at a single crossing, and ELK takes a second of a processor for 500 nodes, half of it to be
 * loaded and compiled.
 */
const LARGE = 150;
/** Graphs that somebody goes back to. */
const KEPT = 8;

const kept = new Map<string, ReadonlyMap<string, Place>>();
let elk: Elk | null = null;
/** ELK waits for ever for a worker that could not be loaded. */
let failed: Promise<never> | null = null;

/** Its places, if it has been laid out before. */
export function placesOf(shape: string, downwards: boolean): ReadonlyMap<string, Place> | null {
  return kept.get(`${downwards} ${shape}`) ?? null;
}

/** Layers from left to right, or downwards, as rows flow. `shape`: JSON of a list of [id, ids of what it reads]. */
export async function laidOut(shape: string, downwards: boolean): Promise<ReadonlyMap<string, Place>> {
  const nodes = (JSON.parse(shape) as [string, string[]][]).map(([id, reads]) => ({ id, reads }));
  if (nodes.length > LARGE) return keep(quickly(nodes, downwards), shape, downwards);
  try {
    return keep(await carefully(nodes, downwards), shape, downwards);
  } catch {
    elk = null; // the next graph asks for it again
    return quickly(nodes, downwards);
  }
}

function keep(
  places: ReadonlyMap<string, Place>,
  shape: string,
  downwards: boolean,
): ReadonlyMap<string, Place> {
  kept.set(`${downwards} ${shape}`, places);
  for (const oldest of [...kept.keys()].slice(0, -KEPT)) kept.delete(oldest);
  return places;
}

function quickly(nodes: readonly Placed[], downwards: boolean): ReadonlyMap<string, Place> {
  const { width, height } = NODE;
  const [length, breadth] = downwards ? [height, width] : [width, height];
  const places = layered(nodes, { along: length + along(downwards), across: breadth + ACROSS });
  return downwards ? new Map([...places].map(([id, { x, y }]) => [id, { x: y, y: x }])) : places;
}

/** By ELK in a worker, so that the page stays quick. */
async function carefully(nodes: readonly Placed[], downwards: boolean): Promise<ReadonlyMap<string, Place>> {
  elk ??= new ELK({ workerFactory });
  const found = elk.layout({
    id: "job",
    layoutOptions: {
      "elk.algorithm": "layered",
      "elk.direction": downwards ? "DOWN" : "RIGHT",
      "elk.layered.spacing.nodeNodeBetweenLayers": `${along(downwards)}`,
      "elk.spacing.nodeNode": `${ACROSS}`,
    },
    children: nodes.map(({ id }) => ({ id, ...NODE })),
    edges: nodes.flatMap(({ id, reads }) =>
      reads.map((source) => ({ id: `${source}-${id}`, sources: [source], targets: [id] })),
    ),
  });
  const graph = await (failed === null ? found : Promise.race([found, failed]));
  return new Map((graph.children ?? []).map(({ id, x, y }) => [id, { x: x ?? 0, y: y ?? 0 }]));
}

function workerFactory(): Worker {
  const worker = new Worker(new URL("elkjs/lib/elk-worker.min.js", import.meta.url), { type: "module" });
  failed = new Promise((_, reject) => {
    worker.onerror = () => {
      reject(new Error("the layout of graphs could not be loaded"));
    };
  });
  failed.catch(() => null); // nobody may wait for it
  return worker;
}

/** Where large graphs have their boxes: in layers as rows flow, computed in some milliseconds. */

export interface Place {
  readonly x: number;
  readonly y: number;
}

/** A node of a graph, and the nodes whose rows it takes. */
export interface Placed {
  readonly id: string;
  readonly reads: readonly string[];
}

/** `along`: from layer to layer, as rows flow. `across`: from node to node of a layer. */
export interface Steps {
  readonly along: number;
  readonly across: number;
}

interface Node {
  readonly id: string;
  readonly before: Node[];
  readonly after: Node[];
  layer: number;
  /** In steps across. */
  at: number;
}

/** Back and forth; after that hardly a crossing goes away. */
const SWEEPS = 4;
/** Of the picture that parts without a connection make together. */
const WIDE = 1.6;

/**
 * A place for each node, all different: along the longest path from a source, across by the mean of its neighbours.
 * A cycle is opened at its first node.
 */
export function layered(given: readonly Placed[], steps: Steps): ReadonlyMap<string, Place> {
  const nodes = connected(given);
  setLayers(nodes);
  const places = new Map<string, Place>();
  for (const { of: part, along, across } of packed(partsOf(nodes).map(arranged), steps)) {
    for (const { id, layer, at } of part) {
      places.set(id, { x: (along + layer) * steps.along, y: (across + at) * steps.across });
    }
  }
  return places;
}

/** What is connected with each other; names that are not there are left out. */
export function connectedParts(given: readonly Placed[]): Placed[][] {
  return partsOf(connected(given)).map((part) =>
    part.map(({ id, before }) => ({ id, reads: [...new Set(before.map((source) => source.id))] })),
  );
}

function connected(given: readonly Placed[]): Node[] {
  const nodes = new Map(
    given.map(({ id }): [string, Node] => [id, { id, before: [], after: [], layer: 0, at: 0 }]),
  );
  for (const { id, reads } of given) {
    const node = nodes.get(id);
    for (const source of reads) {
      const other = nodes.get(source);
      if (node === undefined || other === undefined || other === node) continue;
      node.before.push(other);
      other.after.push(node);
    }
  }
  return [...nodes.values()];
}

function setLayers(nodes: readonly Node[]): void {
  const missing = new Map(nodes.map((node) => [node, node.before.length]));
  const ready = nodes.filter(({ before }) => before.length === 0);
  while (missing.size > 0) {
    const node = ready.shift() ?? [...missing.keys()][0]; // none is ready: a cycle is left
    if (node === undefined || !missing.delete(node)) continue;
    for (const next of node.after) {
      const left = missing.get(next);
      if (left === undefined) continue;
      next.layer = Math.max(next.layer, node.layer + 1);
      missing.set(next, left - 1);
      if (left === 1) ready.push(next);
    }
  }
  for (const node of nodes) {
    // A source stands next to the first that reads it.
    const next = Math.min(...node.after.map(({ layer }) => layer));
    if (node.before.length === 0 && Number.isFinite(next)) node.layer = Math.max(0, next - 1);
  }
}

/** Nodes that are connected with each other, in the order of their first ones. */
function partsOf(nodes: readonly Node[]): Node[][] {
  const seen = new Set<Node>();
  return nodes.flatMap((start) => {
    if (seen.has(start)) return [];
    const part = [start];
    seen.add(start);
    for (const node of part) {
      for (const other of [...node.before, ...node.after]) {
        if (seen.has(other)) continue;
        seen.add(other);
        part.push(other);
      }
    }
    return [part];
  });
}

/** `along`, `across`: its size, later its place. */
interface Part<T> {
  readonly of: T;
  readonly along: number;
  readonly across: number;
}

/** Its nodes in their layers, from 0 on. */
function arranged(nodes: readonly Node[]): Part<readonly Node[]> {
  const first = Math.min(...nodes.map(({ layer }) => layer));
  const layers: Node[][] = [];
  for (const node of nodes) {
    node.layer -= first;
    (layers[node.layer] ??= []).push(node);
  }
  for (const layer of layers) spread(layer, (_, index) => index);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    for (const layer of layers) spread(layer, ({ before, at }) => meanOf(before) ?? at);
    for (const layer of [...layers].reverse()) spread(layer, ({ after, at }) => meanOf(after) ?? at);
  }
  for (const layer of layers) spread(layer, ({ before, at }) => meanOf(before) ?? at);
  const least = Math.min(...nodes.map(({ at }) => at));
  for (const node of nodes) node.at -= least;
  return { of: nodes, along: layers.length, across: 1 + Math.max(...nodes.map(({ at }) => at)) };
}

function meanOf(nodes: readonly Node[]): number | null {
  return nodes.length === 0 ? null : nodes.reduce((sum, { at }) => sum + at, 0) / nodes.length;
}

/** Puts the nodes of a layer in the order of where they want to be, as near to it as each can. */
function spread(layer: Node[], wishOf: (node: Node, index: number) => number): void {
  const wishes = new Map(layer.map((node, index) => [node, wishOf(node, index)]));
  const wish = (node: Node) => wishes.get(node) ?? 0;
  layer.sort((a, b) => wish(a) - wish(b));
  let [next, moved] = [-Infinity, 0];
  for (const node of layer) {
    node.at = Math.max(wish(node), next);
    next = node.at + 1;
    moved += node.at - wish(node);
  }
  for (const node of layer) node.at -= moved / layer.length;
}

/** Parts in rows, one below the other, so that the picture is a little wider than high. */
export function packed<T>(parts: readonly Part<T>[], steps: Steps): Part<T>[] {
  const area = parts.reduce((sum, { along, across }) => sum + along * steps.along * across * steps.across, 0);
  const widest = Math.max(...parts.map(({ along }) => along), Math.sqrt(area * WIDE) / steps.along);
  let [along, across, high] = [0, 0, 0];
  return parts.map((part) => {
    if (along > 0 && along + part.along > widest) [along, across, high] = [0, across + high, 0];
    const place = { of: part.of, along, across };
    along += part.along;
    high = Math.max(high, part.across);
    return place;
  });
}

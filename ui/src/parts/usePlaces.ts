import { useEffect, useState } from "react";

import { type Place, laidOut } from "./layout";

/** A node of a graph, and the nodes whose rows it takes. */
export interface Placed {
  readonly id: string;
  readonly reads: readonly string[];
}

/** Where each node stands; laid out again only if the shape of the graph or its direction changes. Null: not yet. */
export function usePlaces(nodes: readonly Placed[], downwards: boolean): ReadonlyMap<string, Place> | null {
  const [places, setPlaces] = useState<ReadonlyMap<string, Place> | null>(null);
  const shape = JSON.stringify(nodes.map(({ id, reads }) => [id, reads]));
  useEffect(() => {
    let isWanted = true;
    const graph = (JSON.parse(shape) as [string, string[]][]).map(([id, reads]) => ({ id, reads }));
    void laidOut(graph, downwards).then((found) => {
      if (isWanted) setPlaces(found);
    });
    return () => {
      isWanted = false;
    };
  }, [shape, downwards]);
  return places;
}

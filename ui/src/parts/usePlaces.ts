import { useMemo } from "react";

import type { Place, Placed } from "../model/layered";
import { placesOf } from "./layout";

/** Where each node stands; laid out only if this shape of a graph was not yet, or its direction is another one. */
export function usePlaces(nodes: readonly Placed[], downwards: boolean): ReadonlyMap<string, Place> {
  const shape = useMemo(() => JSON.stringify(nodes.map(({ id, reads }) => [id, reads])), [nodes]);
  return useMemo(() => placesOf(shape, downwards), [shape, downwards]);
}

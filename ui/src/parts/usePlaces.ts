import { useEffect, useMemo, useState } from "react";

import type { Place, Placed } from "../model/layered";
import { laidOut, placesOf } from "./layout";

type Places = ReadonlyMap<string, Place>;

/**
 * Where each node stands; laid out only if this shape of a graph was not yet, or its direction is another one. Null: not
 * yet. Until another shape is laid out, the places of the last one stay.
 */
export function usePlaces(nodes: readonly Placed[], downwards: boolean): Places | null {
  const shape = useMemo(() => JSON.stringify(nodes.map(({ id, reads }) => [id, reads])), [nodes]);
  const known = placesOf(shape, downwards);
  const [last, setLast] = useState<Places | null>(null);
  useEffect(() => {
    let isWanted = true;
    void laidOutOnce(shape, downwards).then((found) => {
      if (isWanted) setLast(found);
    });
    return () => {
      isWanted = false;
    };
  }, [shape, downwards]);
  return known ?? last;
}

async function laidOutOnce(shape: string, downwards: boolean): Promise<Places> {
  return placesOf(shape, downwards) ?? laidOut(shape, downwards);
}

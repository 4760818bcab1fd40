import { useQuery } from "@tanstack/react-query";

import { clusterQuery } from "../api/clusterQueries";
import { type Elsewhere, elsewhere } from "../model/masters";

const LOOK_MS = 30_000;

/** Asked for while the own master answers, since nobody says it afterwards. */
export function useOtherMasters(): readonly Elsewhere[] {
  const { data } = useQuery({
    ...clusterQuery,
    staleTime: LOOK_MS,
    refetchInterval: ({ state }) => (state.data?.zookeeper == null ? false : LOOK_MS),
  });
  return elsewhere(data?.contenders, location.origin);
}

/** Links to this page at the other masters. */
export function OtherMasters({ masters }: { masters: readonly Elsewhere[] }) {
  if (masters.length === 0) return null;
  const page = location.pathname + location.search;
  return (
    <>
      {" Or open it at "}
      {masters.map(({ origin, host }, place) => (
        <span key={origin}>
          {place > 0 && ", "}
          <a href={origin + page}>{host}</a>
        </span>
      ))}
      {": each master answers for the one that leads."}
    </>
  );
}

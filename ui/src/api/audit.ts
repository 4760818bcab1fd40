import { keepPreviousData, queryOptions } from "@tanstack/react-query";

import { client, dataOf } from "./client";

const AUDIT_MS = 10_000;

/** Who has changed what; the newest entries first, so many at most. */
export function auditQuery(newest: number) {
  return queryOptions({
    queryKey: ["audit", newest],
    queryFn: async ({ signal }) =>
      dataOf(await client.GET("/unistream/audit", { params: { query: { limit: newest } }, signal })).entries,
    refetchInterval: AUDIT_MS,
    placeholderData: keepPreviousData,
  });
}

import { queryOptions } from "@tanstack/react-query";

import { client, dataOf } from "./client";
import type { NewToken, TokenBody } from "./schema";

const TOKENS_MS = 5_000;

/** All tokens of the cluster, the newest first, without their texts. */
export const tokensQuery = queryOptions({
  queryKey: ["tokens"],
  queryFn: async ({ signal }) => dataOf(await client.GET("/unistream/tokens", { signal })).tokens,
  refetchInterval: TOKENS_MS,
});

/** A new token, whose text is in this answer and nowhere else. Throws as `dataOf`. */
export async function makeToken(body: TokenBody): Promise<NewToken> {
  return dataOf(await client.POST("/unistream/tokens", { body }));
}

/** It is taken no more. Throws as `dataOf`. */
export async function revokeToken(id: string): Promise<void> {
  dataOf(await client.DELETE("/unistream/tokens/{id_}", { params: { path: { id_: id } } }));
}

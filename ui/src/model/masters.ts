import type { ContenderInfo } from "../api/schema";

/** Another master of the cluster: where its pages are, and how people call that. */
export interface Elsewhere {
  readonly origin: string;
  readonly host: string;
}

/**
 * The masters but the one that this page is from. Each answers for whoever leads. What is not the address of a page is left out:
 * it was read from ZooKeeper.
 */
export function elsewhere(
  contenders: readonly ContenderInfo[] | null | undefined,
  here: string,
): Elsewhere[] {
  const found = (contenders ?? []).flatMap(({ rest_url: url }) =>
    url === null ? [] : (addressOf(url) ?? []),
  );
  const others = found.filter(({ origin }) => origin !== here);
  return [...new Map(others.map((one) => [one.origin, one])).values()];
}

export function addressOf(url: string): Elsewhere | null {
  if (!URL.canParse(url)) return null;
  const { protocol, origin, host } = new URL(url);
  return protocol === "http:" || protocol === "https:" ? { origin, host } : null;
}

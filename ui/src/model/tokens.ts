import type { TokenShown } from "../api/schema";
import { type Scope, SCOPES } from "./access";
import type { Tone } from "./states";

const DAY_MS = 86_400_000;

/** How long a token can be taken, as people choose it; null: for ever. */
export const DURATIONS: readonly (readonly [name: string, lastsMs: number | null])[] = [
  ["1 day", DAY_MS],
  ["7 days", 7 * DAY_MS],
  ["30 days", 30 * DAY_MS],
  ["90 days", 90 * DAY_MS],
  ["1 year", 365 * DAY_MS],
  ["for ever", null],
];
export const FIRST_DURATION = "90 days";
export const FIRST_SCOPE: Scope = SCOPES[0];

/** Of a token; `untilMs`: it is taken until then, null: for ever. */
export type TokenState =
  | { readonly is: "taken"; readonly untilMs: number | null }
  | { readonly is: "used up" }
  | { readonly is: "expired"; readonly atMs: number }
  | { readonly is: "revoked"; readonly atMs: number };

/** `nowMs`: by the clock of the cluster; null: it has not said. */
export function stateOf({ expiresMs, revokedMs, usesLeft }: TokenShown, nowMs: number | null): TokenState {
  if (revokedMs !== null) return { is: "revoked", atMs: revokedMs };
  if (usesLeft === 0) return { is: "used up" };
  if (expiresMs !== null && nowMs !== null && expiresMs <= nowMs) return { is: "expired", atMs: expiresMs };
  return { is: "taken", untilMs: expiresMs };
}

export function toneOfToken({ is }: TokenState): Tone {
  switch (is) {
    case "taken":
      return "good";
    case "used up":
    case "expired":
    case "revoked":
      return "quiet";
  }
}

/** Which tokens the page lists, as the URL says it; `ended`: also those that are taken no more. */
export interface TokensView {
  readonly q: string;
  readonly ended: boolean;
}

export function tokensViewOf(search: { readonly [name in keyof TokensView]?: unknown }): TokensView {
  return {
    q: typeof search.q === "string" || typeof search.q === "number" ? String(search.q) : "",
    ended: search.ended === true,
  };
}

/** Those whose name has this in it, or whose id begins with it. */
export function chosenTokens(
  tokens: readonly TokenShown[],
  { q, ended }: TokensView,
  nowMs: number | null,
): TokenShown[] {
  const wanted = q.trim().toLowerCase();
  return tokens.filter(
    (token) =>
      (ended || stateOf(token, nowMs).is === "taken") &&
      (token.name.toLowerCase().includes(wanted) || token.id.startsWith(wanted)),
  );
}

import type { Features, IdentityShown } from "../api/schema";

/** What a person with a token may do; each holds the ones before it. */
export const SCOPES = ["read", "operate", "submit", "admin"] as const;
/** Those of people, and that of a host, which holds no other and is held by none. */
export type Scope = (typeof SCOPES)[number] | "join";

export function allows(scope: Scope, needed: Scope): boolean {
  if (scope === "join" || needed === "join") return scope === needed;
  return SCOPES.indexOf(scope) >= SCOPES.indexOf(needed);
}

/** What each scope is for, as people choose it. */
export function meaningOf(scope: Scope): string {
  switch (scope) {
    case "read":
      return "looks at everything but secrets, also at rows of state and of dead letters";
    case "operate":
      return "also takes savepoints, stops, cancels and rescales jobs, replays letters, starts again what was accepted";
    case "submit":
      return "also submits jobs, which run code of their own as the owner of the cluster";
    case "admin":
      return "also makes and revokes tokens, and ends the cluster";
    case "join":
      return "lets the workers of a host join, and does nothing else";
  }
}

/** Whether this page may change something. */
export type May =
  | { readonly is: "yes" }
  /** Until both are known nothing is offered. */
  | { readonly is: "not known" }
  /** By the configuration of the cluster. */
  | { readonly is: "turned off" }
  /** By the scope of who is signed in. */
  | { readonly is: "too small"; readonly name: string; readonly scope: Scope; readonly needed: Scope };

export function mayOf(
  needed: Scope,
  features: Pick<Features, "web-cancel"> | undefined,
  identity: Pick<IdentityShown, "name" | "scope"> | undefined,
): May {
  if (features === undefined || identity === undefined) return { is: "not known" };
  if (!features["web-cancel"]) return { is: "turned off" };
  const { name, scope } = identity;
  return allows(scope, needed) ? { is: "yes" } : { is: "too small", name, scope, needed };
}

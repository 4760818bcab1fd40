import { describe, expect, test } from "vitest";

import type { TokenShown } from "../api/schema";
import {
  DURATIONS,
  FIRST_DURATION,
  type TokensView,
  chosenTokens,
  stateOf,
  tokensViewOf,
  toneOfToken,
} from "./tokens";

const NOW = 1_000_000;

function token(name: string, more: Partial<TokenShown> = {}): TokenShown {
  const times = { createdMs: 1, expiresMs: null, revokedMs: null, usedMs: null, usesLeft: null };
  return { id: "3f9c0d12ab45", name, scope: "read", ...times, ...more };
}

describe("tokens in a list", () => {
  test.each<[string, Partial<TokenShown>, number | null, ReturnType<typeof stateOf>]>([
    ["without an end", {}, NOW, { is: "taken", untilMs: null }],
    ["with an end", { expiresMs: NOW + 1 }, NOW, { is: "taken", untilMs: NOW + 1 }],
    ["at its end", { expiresMs: NOW }, NOW, { is: "expired", atMs: NOW }],
    ["used as often as it may be", { usesLeft: 0 }, NOW, { is: "used up" }],
    ["to be used once more", { usesLeft: 1 }, NOW, { is: "taken", untilMs: null }],
    ["revoked", { revokedMs: 5 }, NOW, { is: "revoked", atMs: 5 }],
    ["revoked, and over", { revokedMs: 5, expiresMs: 7 }, NOW, { is: "revoked", atMs: 5 }],
    ["by a cluster that has not said the time", { expiresMs: 7 }, null, { is: "taken", untilMs: 7 }],
  ])("%s", (_, more, nowMs, state) => {
    expect(stateOf(token("a", more), nowMs)).toEqual(state);
    expect(toneOfToken(state)).toBe(state.is === "taken" ? "good" : "quiet");
  });

  const all = [
    token("Nightly"),
    token("browser of me", { id: "aaaa00000000" }),
    token("over", { expiresMs: 1 }),
    token("revoked", { revokedMs: 1 }),
  ];
  test.each<[string, TokensView, string[]]>([
    ["those that are taken", { q: "", ended: false }, ["Nightly", "browser of me"]],
    ["all", { q: "", ended: true }, ["Nightly", "browser of me", "over", "revoked"]],
    ["by a part of a name, in any case", { q: " night ", ended: false }, ["Nightly"]],
    ["by the beginning of an id", { q: "aaaa", ended: false }, ["browser of me"]],
    ["none", { q: "nobody", ended: true }, []],
  ])("%s", (_, view, names) => {
    expect(chosenTokens(all, view, NOW).map(({ name }) => name)).toEqual(names);
  });

  test.each<[Record<string, unknown>, TokensView]>([
    [{}, { q: "", ended: false }],
    [
      { q: 7, ended: true },
      { q: "7", ended: true },
    ],
    [
      { q: ["a"], ended: "true" },
      { q: "", ended: false },
    ],
  ])("a URL says which: %o", (search, view) => {
    expect(tokensViewOf(search)).toEqual(view);
  });

  test("the first duration is one that can be chosen", () => {
    expect(DURATIONS.find(([name]) => name === FIRST_DURATION)?.[1]).toBe(90 * 86_400_000);
  });
});

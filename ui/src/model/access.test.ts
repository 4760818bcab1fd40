import { describe, expect, test } from "vitest";

import { type May, type Scope, SCOPES, allows, mayOf, meaningOf } from "./access";

describe("what a scope lets somebody do", () => {
  test.each(SCOPES.flatMap((scope) => SCOPES.map((needed) => [scope, needed] as const)))(
    "%s does what needs %s",
    (scope, needed) => {
      expect(allows(scope, needed)).toBe(SCOPES.indexOf(scope) >= SCOPES.indexOf(needed));
    },
  );

  test("a host may join, and nobody else", () => {
    expect(SCOPES.some((scope) => allows(scope, "join") || allows("join", scope))).toBe(false);
    expect(allows("join", "join")).toBe(true);
    expect(meaningOf("join")).toContain("nothing else");
  });

  test("each is described as more than the one before it", () => {
    expect(new Set(SCOPES.map(meaningOf)).size).toBe(SCOPES.length);
    expect(SCOPES.slice(1).every((scope) => meaningOf(scope).startsWith("also "))).toBe(true);
  });

  const me = (scope: Scope) => ({ name: "me", scope });
  const [on, off] = [{ "web-cancel": true }, { "web-cancel": false }];
  test.each<[string, May["is"], Parameters<typeof mayOf>]>([
    ["an operator", "yes", ["operate", on, me("operate")]],
    ["an admin", "yes", ["operate", on, me("admin")]],
    ["a reader", "too small", ["operate", on, me("read")]],
    ["an operator of tokens", "too small", ["admin", on, me("submit")]],
    ["an admin, where pages change nothing", "turned off", ["operate", off, me("admin")]],
    ["a reader, where pages change nothing", "turned off", ["operate", off, me("read")]],
    ["somebody of whom nothing is known", "not known", ["operate", on, undefined]],
    ["an admin of an unknown cluster", "not known", ["operate", undefined, me("admin")]],
  ])("%s", (_, is, given) => {
    expect(mayOf(...given).is).toBe(is);
  });

  test("who may not learns which scope is needed", () => {
    expect(mayOf("operate", on, me("read"))).toEqual({
      is: "too small",
      name: "me",
      scope: "read",
      needed: "operate",
    });
  });
});

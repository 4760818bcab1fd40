import { describe, expect, test } from "vitest";

import document from "../../openapi.json";
import type { AuditEntry } from "../api/schema";
import { type AuditView, auditViewOf, chosenEntries, deedOf, outcomeOf } from "./audit";

const JOB = "a".repeat(32);
const entry = (more: Partial<AuditEntry> = {}): AuditEntry => ({
  ...{ atMs: 1, token: "t1", name: "nightly", method: "PATCH", path: `/jobs/${JOB}` },
  ...{ client: "10.0.0.7", status: 202, ...more },
});

describe("what was asked for", () => {
  test.each([
    ["PATCH", `/jobs/${JOB}`, "cancelled the job", JOB, null],
    ["PATCH", `/v1/jobs/${JOB}`, "cancelled the job", JOB, null],
    ["DELETE", "/unistream/tokens/night%20ly", "revoked a token", null, "night ly"],
    ["DELETE", "/unistream/tokens/%E0%A4%A", "revoked a token", null, "%E0%A4%A"],
    ["POST", "/unistream/jobs", "submitted a job", null, null],
  ] as const)("%s %s", (method, path, words, job, what) => {
    expect(deedOf({ method, path })).toEqual({ words, job, what });
  });

  test.each([
    ["GET", `/jobs/${JOB}`],
    ["POST", "/unistream/jobs/"],
    ["PATCH", `/jobs/${JOB}/more`],
    ["PATCH", ""],
  ])("%s %s has no words", (method, path) => {
    expect(deedOf({ method, path })).toBeNull();
  });

  /** No mere looks that stand in no log: a login has no token yet, and heartbeats are left out. */
  const NOT_NOTED = ["POST /unistream/login", "POST /unistream/run-links/heartbeat"];

  test("every path that changes something has words", () => {
    const changing = Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.keys(methods)
        .filter((method) => method !== "get")
        .map((method) => `${method.toUpperCase()} ${path.replaceAll(/\{[^}]*\}/g, "x")}`),
    );
    expect(changing.length).toBeGreaterThan(20);
    const silent = changing.filter((one) => {
      const [method = "", path = ""] = one.split(" ");
      return deedOf({ method, path }) === null;
    });
    expect(silent.sort()).toEqual(NOT_NOTED);
  });
});

test.each([
  [200, "done", "good", "done"],
  [201, "done", "good", "made"],
  [202, "done", "good", "accepted"],
  [400, "refused", "warn", "not valid"],
  [403, "refused", "warn", "scope is too small"],
  [404, "refused", "warn", "no such thing"],
  [409, "refused", "warn", "not in that state"],
  [429, "refused", "warn", "refused"],
  [500, "failed", "bad", "failed"],
  [503, "failed", "bad", "was away"],
  [0, "failed", "bad", "had gone"],
  [-1, "failed", "bad", "failed"],
])("status %i", (status, kind, tone, words) => {
  const found = outcomeOf(status);
  expect([found.kind, found.tone]).toEqual([kind, tone]);
  expect(found.words).toContain(words);
});

describe("which entries are listed", () => {
  const all = [
    entry({ atMs: 4 }),
    entry({ atMs: 3, status: 403, name: "Dashboard" }),
    entry({ atMs: 2, method: "POST", path: "/unistream/tokens", status: 201 }),
    entry({ atMs: 1, method: "DELETE", path: "/cluster", status: 0, client: "10.9.9.9" }),
  ];
  test.each<[string, Partial<AuditView>, number[]]>([
    ["all", {}, [4, 3, 2, 1]],
    ["by a name in any case", { q: "DASH" }, [3]],
    ["by what it means", { q: "cancelled" }, [4, 3]],
    ["by all of several words", { q: "cancelled nightly" }, [4]],
    ["by a client", { q: "10.9" }, [1]],
    ["by a status", { q: "201" }, [2]],
    ["by outcome", { outcome: "refused" }, [3]],
    ["by outcome and word", { outcome: "failed", q: "nightly" }, [1]],
    ["none", { q: "nobody" }, []],
  ])("%s", (_, view, wanted) => {
    expect(chosenEntries(all, { ...auditViewOf({}), ...view }).map(({ atMs }) => atMs)).toEqual(wanted);
  });
});

test.each<[object, AuditView]>([
  [{}, { q: "", outcome: "all", newest: 100 }],
  [
    { q: 7, outcome: "refused", newest: 1_000 },
    { q: "7", outcome: "refused", newest: 1_000 },
  ],
  [
    { q: ["a"], outcome: "__proto__", newest: 1e9 },
    { q: "", outcome: "all", newest: 100 },
  ],
])("a URL says which: %o", (search, view) => {
  expect(auditViewOf(search)).toEqual(view);
});

import { describe, expect, test } from "vitest";

import { CERTIFICATES } from "../../stories/fixtures";
import type { TaskManagerInfo, TokenShown, WorkersInfo } from "../api/schema";
import {
  type HostState,
  hostsOf,
  hostsWith,
  joinTokens,
  joinable,
  nowhere,
  toneOfHost,
  usesOf,
} from "./hosts";

const NOW = 1_000_000;

function worker(id: string, more: Partial<TaskManagerInfo> = {}): WorkersInfo["workers"][number] {
  return {
    slots: [],
    has_log: false,
    worker: {
      ...{
        id,
        slots: 2,
        free_slots: 1,
        pid: 1,
        host: "a",
        address: `grpc://a/${id}`,
        blocked_ms: 0,
        draining: false,
        jobs: [],
      },
      ...{ heartbeat_ms: NOW, registered_ms: 5, started_ms: 4, memory: {}, memory_used: {} },
      profile: {
        cpu: 0,
        heap: 0,
        off_heap: 0,
        managed: 0,
        network: 0,
      } as unknown as TaskManagerInfo["profile"],
      hardware: { cpu_cores: 8, memory_bytes: 100 },
      ...more,
    },
  };
}

const info = (workers: WorkersInfo["workers"], blocked: WorkersInfo["blocked"] = []): WorkersInfo => ({
  now_ms: NOW,
  workers,
  blocked,
});
const BLOCKED = { host: "b", until_ms: NOW + 1, shut: true, losses: ["killed"] };

describe("hosts", () => {
  test("workers of one host share its cores, and their slots are added", () => {
    const [host] = hostsOf(info([worker("1", { registered_ms: 9 }), worker("2")]));
    expect(host).toMatchObject({ name: "a", slots: 4, free: 2, cores: 8, sinceMs: 5, heardMs: NOW });
    expect(host?.addresses).toEqual(["grpc://a/1", "grpc://a/2"]);
  });

  test("one that is avoided is there without a worker", () => {
    const hosts = hostsOf(info([worker("1")], [BLOCKED]));
    expect(hosts.map(({ name, state, slots, cores }) => [name, state, slots, cores])).toEqual([
      ["a", "serves", 4 / 2, 8],
      ["b", "blocked", 0, null],
    ]);
  });

  test.each<[string, Partial<TaskManagerInfo>, HostState]>([
    ["that serves", {}, "serves"],
    ["that has not been heard of", { heartbeat_ms: NOW - 60_000 }, "silent"],
    ["that starts", { address: null }, "starting"],
    ["whose slots are blocked", { blocked_ms: 1 }, "blocked"],
  ])("one %s", (_, more, state) => {
    const [host] = hostsOf(info([worker("1", more)]));
    expect(host?.state).toBe(state);
    expect(toneOfHost(state)).toBe(
      { serves: "good", silent: "bad", starting: "busy", blocked: "warn" }[state],
    );
  });

  test("a worker that has not said where it is stands on no host", () => {
    const lost = info([worker("1", { host: null })]);
    expect(hostsOf(lost)).toEqual([]);
    expect(nowhere(lost)).toBe(1);
  });

  test.each([
    ["", 1],
    [" A ", 1],
    ["grpc://a/1", 1],
    ["tm", 0],
  ])("with %j: %s", (text, found) => {
    expect(hostsWith(hostsOf(info([worker("1")])), text)).toHaveLength(found);
  });

  test.each([
    [true, CERTIFICATES.rest, "yes"],
    [true, null, "no REST API for other hosts"],
    [false, CERTIFICATES.rest, "no workers of other hosts"],
    [false, null, "no workers of other hosts"],
  ])("workers by certificates: %s, REST: %j: %s", (encrypts_workers, rest, way) => {
    expect(joinable({ encrypts_workers, rest })).toBe(way);
  });

  test("tokens with which a host can join now", () => {
    const token = (more: Partial<TokenShown>): TokenShown => ({
      ...{ id: "1", name: "n", scope: "join", createdMs: 1, expiresMs: null, revokedMs: null, usedMs: null },
      ...{ usesLeft: 1, ...more },
    });
    const all = [token({}), token({ scope: "read" }), token({ usesLeft: 0 }), token({ expiresMs: NOW })];
    expect(joinTokens(all, NOW)).toEqual([all[0]]);
  });

  test.each<[string, number | null]>([
    ["1", 1],
    ["1000000", 1_000_000],
    ["1000001", null],
    ["0", null],
    ["-1", null],
    ["1.5", null],
    ["", null],
    ["many", null],
  ])("so many hosts: %j", (text, uses) => {
    expect(usesOf(text)).toBe(uses);
  });
});

import type { BlockedHostInfo, CertificatesShown, TokenShown, WorkerShown, WorkersInfo } from "../api/schema";
import type { Tone } from "./states";
import { stateOf as stateOfToken } from "./tokens";
import { stateOf } from "./workers";

/** A host with its workers together; null: nobody has said it. */
export interface Host {
  readonly name: string;
  readonly workers: readonly WorkerShown[];
  readonly slots: number;
  readonly free: number;
  readonly cores: number | null;
  readonly memoryBytes: number | null;
  readonly addresses: readonly string[];
  /** Since then it has had a worker. */
  readonly sinceMs: number | null;
  /** Of the worker that was heard last. */
  readonly heardMs: number | null;
  readonly blocked: BlockedHostInfo | null;
  readonly state: HostState;
}

/** How a host is, the worst first. */
export type HostState = "silent" | "blocked" | "starting" | "serves";

export function toneOfHost(state: HostState): Tone {
  switch (state) {
    case "silent":
      return "bad";
    case "blocked":
      return "warn";
    case "starting":
      return "busy";
    case "serves":
      return "good";
  }
}

/** Of workers that say where they are, and blocked ones without a worker; by name. */
export function hostsOf({ workers, blocked, now_ms: nowMs }: WorkersInfo): Host[] {
  const there = new Map<string, WorkerShown[]>(blocked.map(({ host }) => [host, []]));
  for (const one of workers) {
    const { host } = one.worker;
    if (host !== null) there.set(host, [...(there.get(host) ?? []), one]);
  }
  return [...there]
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .map(([name, found]) => hostOf(name, found, blocked.find(({ host }) => host === name) ?? null, nowMs));
}

/** How many workers have not said where they are. */
export function nowhere({ workers }: WorkersInfo): number {
  return workers.filter(({ worker }) => worker.host === null).length;
}

function hostOf(
  name: string,
  workers: readonly WorkerShown[],
  blocked: BlockedHostInfo | null,
  nowMs: number,
): Host {
  const all = workers.map(({ worker }) => worker);
  const up = all.filter(({ address }) => address !== null);
  const states = workers.map((one) => stateOf(one, nowMs));
  return {
    name,
    workers,
    slots: up.reduce((sum, { slots }) => sum + slots, 0),
    free: up.reduce((sum, { free_slots }) => sum + free_slots, 0),
    cores: most(all.map(({ hardware }) => hardware?.cpu_cores)),
    memoryBytes: most(all.map(({ hardware }) => hardware?.memory_bytes)),
    addresses: up.flatMap(({ address }) => (address === null ? [] : [address])),
    sinceMs: least(all.map(({ registered_ms }) => registered_ms)),
    heardMs: most(all.map(({ heartbeat_ms }) => heartbeat_ms)),
    blocked,
    state: states.includes("silent")
      ? "silent"
      : blocked !== null || states.includes("blocked")
        ? "blocked"
        : up.length === 0
          ? "starting"
          : "serves",
  };
}

type Figures = readonly (number | null | undefined)[];

const known = (of: Figures): number[] => of.filter((one) => one !== null && one !== undefined);

function most(of: Figures): number | null {
  const found = known(of);
  return found.length === 0 ? null : Math.max(...found);
}

function least(of: Figures): number | null {
  const found = known(of);
  return found.length === 0 ? null : Math.min(...found);
}

/** Hosts whose name, address or worker has the text, whatever its case. */
export function hostsWith(hosts: readonly Host[], text: string): readonly Host[] {
  const wanted = text.trim().toLowerCase();
  const has = (value: string) => value.toLowerCase().includes(wanted);
  return hosts.filter(
    ({ name, addresses, workers }) =>
      has(name) || addresses.some(has) || workers.some(({ worker }) => has(worker.id)),
  );
}

/** Tokens with which hosts can join now. */
export function joinTokens(tokens: readonly TokenShown[], nowMs: number | null): readonly TokenShown[] {
  return tokens.filter((token) => token.scope === "join" && stateOfToken(token, nowMs).is === "taken");
}

/** Whether another host can join, and if not, which servers would have to listen for it. */
export type Joinable = "yes" | "no workers of other hosts" | "no REST API for other hosts";

/** A host asks the REST API for its certificate, and believes it by the fingerprint that is in the token. */
export function joinable(shown: Pick<CertificatesShown, "encrypts_workers" | "rest">): Joinable {
  if (!shown.encrypts_workers) return "no workers of other hosts";
  return shown.rest === null ? "no REST API for other hosts" : "yes";
}

const HOUR_MS = 3_600_000;

/** How long a token for hosts can be taken: not for ever, since it lets programs in. */
export const JOIN_DURATIONS: readonly (readonly [name: string, lastsMs: number])[] = [
  ["1 hour", HOUR_MS],
  ["8 hours", 8 * HOUR_MS],
  ["1 day", 24 * HOUR_MS],
  ["7 days", 168 * HOUR_MS],
];
export const USES_MAX = 1_000_000;

/** What a person has typed as the number of hosts; null: it is none. */
export function usesOf(text: string): number | null {
  const uses = Number(text);
  return Number.isInteger(uses) && uses >= 1 && uses <= USES_MAX ? uses : null;
}

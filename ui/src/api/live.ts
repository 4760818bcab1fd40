import type { QueryClient, QueryKey } from "@tanstack/react-query";

import { asked } from "./asked";
import { type Connection, type Happening, NOT_SHOWN, after } from "./connection";
import { EventReader, type StreamEvent } from "./eventReader";
import { OWN_HEADERS } from "./headers";
import { type LiveEvent, type Pictures, type Whole, taken } from "./pictures";
import { NO_JOBMANAGER, isOfAnother, jsonIn, sentencesOf } from "./refusals";
import type { Overview } from "./schema";
import { ServerClock } from "./serverClock";

const TICK_MS = 1_000;
const SETTLED_MS = 50;
/** A job that has ended is asked for as seldom, where each second is asked. */
const ENDED_MS = 30_000;
const OVERVIEW = "overview";

/** What the shell says of the data of all pages. Times are of the clock of this browser. */
export interface LiveStatus {
  readonly phase: Connection["phase"];
  readonly polls: boolean;
  /** When the cluster has answered last; null: never. */
  readonly heardMs: number | null;
  /** Since when the page is looked at. */
  readonly shownMs: number;
  /** Since when something is not looked at, since it hangs there; null: all is. */
  readonly lateSinceMs: number | null;
  readonly serverVersion: string | null;
  /** What was answered last in place of what was asked for; null: it was answered, or there was no answer. */
  readonly trouble: string | null;
  /** Now, once a second: here, and in the cluster. */
  readonly tickedMs: number;
  readonly nowMs: number | null;
}

/** What a browser has, and a test passes. */
export interface World {
  readonly fetch: (url: string, init: RequestInit) => Promise<Response>;
  readonly wallMs: () => number;
  readonly steadyMs: () => number;
  readonly chance: () => number;
  readonly isShown: () => boolean;
}

const BROWSER: World = {
  fetch: (url, init) => asked(new Request(url, init)),
  wallMs: () => Date.now(),
  steadyMs: () => performance.now(),
  chance: () => Math.random(),
  isShown: () => document.visibilityState !== "hidden",
};

/**
 * Keeps what pages show as it is in the cluster: by one stream of events for all of them, which goes on from its
 * last id wherever it breaks; while none gets through, by asking each second. Topics are the queries that a page
 * shows: `["overview"]`, `["job", ID]`, `["checkpoints", ID]`.
 */
export class Live {
  readonly #world: World;
  readonly #clock = new ServerClock();
  readonly #listeners = new Set<() => void>();
  #queries: QueryClient | null = null;
  #topics: readonly string[] = [];
  #connection = NOT_SHOWN;
  #request = new AbortController();
  #lastId: string | null = null;
  #pictures: Pictures = new Map();
  #lookedMs: number | null = null;
  #status: LiveStatus;

  constructor(world: World = BROWSER) {
    this.#world = world;
    this.#status = {
      phase: "hidden",
      polls: false,
      heardMs: null,
      shownMs: world.wallMs(),
      lateSinceMs: null,
      serverVersion: null,
      trouble: null,
      tickedMs: world.wallMs(),
      nowMs: null,
    };
  }

  /** From now on; what is returned ends it. */
  start(queries: QueryClient): () => void {
    this.#queries = queries;
    const unsubscribe = queries.getQueryCache().subscribe(({ type }) => {
      if (type === "observerAdded" || type === "observerRemoved") this.#soon();
    });
    const onVisibility = () => {
      this.#happened(this.#world.isShown() ? "shown" : "hidden");
    };
    document.addEventListener("visibilitychange", onVisibility);
    const timer = setInterval(() => {
      this.#tick();
    }, TICK_MS);
    this.#topics = this.#wanted();
    onVisibility();
    return () => {
      unsubscribe();
      document.removeEventListener("visibilitychange", onVisibility);
      clearInterval(timer);
      this.#happened("hidden");
    };
  }

  /** The newest picture of a topic, if the stream has it now. */
  picture(topic: string): Whole | undefined {
    return this.#connection.phase === "open" ? this.#pictures.get(topic)?.whole : undefined;
  }

  /** A request of its own was answered. */
  answered(overview: Overview): void {
    const localMs = this.#world.wallMs();
    this.#clock.heard(overview.now_ms, localMs);
    const { version: serverVersion } = overview;
    if (this.#status.trouble !== null) this.#retry();
    this.#say({ heardMs: localMs, serverVersion, trouble: null, nowMs: this.#clock.at(localMs) });
  }

  /** A request of its own was not; `why`: the words of who has refused, or null: nobody answers. */
  unanswered(why: string | null): void {
    this.#say({ trouble: why });
  }

  /** Up to when what is shown of a topic holds, by the clock of the cluster; null: the stream has it not. */
  holdsUntilMs(topic: string): number | null {
    const picture = this.#connection.phase === "open" ? this.#pictures.get(topic) : undefined;
    return picture === undefined ? null : Math.max(picture.atMs, this.#lookedMs ?? 0);
  }

  /** A time of this browser's clock by the clock of the cluster. */
  serverMs(localMs: number): number {
    return this.#clock.at(localMs) ?? localMs;
  }

  readonly status = (): LiveStatus => this.#status;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  // --- what happens ---

  #settling: ReturnType<typeof setTimeout> | undefined;

  /** Pages come and go several at once. */
  #soon(): void {
    clearTimeout(this.#settling);
    this.#settling = setTimeout(() => {
      const topics = this.#wanted();
      if (topics.join(" ") === this.#topics.join(" ")) return;
      this.#topics = topics;
      this.#happened("other topics");
    }, SETTLED_MS);
  }

  #wanted(): string[] {
    const active = this.#queries?.getQueryCache().findAll({ type: "active" }) ?? [];
    const found = active.flatMap(({ queryKey }) => topicOf(queryKey) ?? []);
    return [...new Set([OVERVIEW, ...found])].sort();
  }

  #tick(): void {
    this.#happened("tick");
    if (this.#connection.polls) this.#poll();
    const tickedMs = this.#world.wallMs();
    this.#say({ tickedMs, nowMs: this.#clock.at(tickedMs) });
  }

  #happened(happening: Happening): void {
    if (happening === "shown" && this.#connection.phase === "hidden") {
      this.#status = { ...this.#status, shownMs: this.#world.wallMs() };
    }
    const [connection, act] = after(
      this.#connection,
      happening,
      this.#world.steadyMs(),
      this.#world.chance(),
    );
    this.#connection = connection;
    if (act !== null) this.#request.abort();
    if (act === "open") void this.#follow();
    this.#say({ phase: connection.phase, polls: connection.polls });
  }

  #say(changes: Partial<LiveStatus>): void {
    const next = { ...this.#status, ...changes };
    const isNew = (Object.keys(next) as (keyof LiveStatus)[]).some(
      (name) => next[name] !== this.#status[name],
    );
    if (!isNew) return;
    this.#status = next;
    for (const listener of [...this.#listeners]) listener();
  }

  #poll(): void {
    const nowMs = this.#world.wallMs();
    const predicate = ({ queryKey, state }: { queryKey: QueryKey; state: Asked }) =>
      topicOf(queryKey) !== null && (!hasEnded(state.data) || nowMs - askedMs(state) >= ENDED_MS);
    void this.#queries?.refetchQueries({ type: "active", predicate }, { cancelRefetch: false });
  }

  /** Somebody answers again: what could not be asked for meanwhile is. */
  #retry(): void {
    const predicate = ({ queryKey, state }: { queryKey: QueryKey; state: { status: string } }) =>
      state.status === "error" && topicOf(queryKey) === null;
    void this.#queries?.refetchQueries({ type: "active", predicate }, { cancelRefetch: false });
  }

  // --- the stream ---

  async #follow(): Promise<void> {
    const request = new AbortController();
    this.#request = request;
    const { signal } = request;
    try {
      const headers = { ...OWN_HEADERS, Accept: "text/event-stream" };
      const answer = await this.#world.fetch(this.#url(), { headers, signal, cache: "no-store" });
      const isStream = answer.headers.get("content-type")?.startsWith("text/event-stream") ?? false;
      if (!answer.ok || !isStream || answer.body === null) {
        await this.#refused(answer, signal);
        return;
      }
      await this.#read(answer.body.getReader(), signal);
    } catch (error) {
      if (signal.aborted) return;
      this.#say({ trouble: null });
      if (error instanceof RangeError || error instanceof SyntaxError) this.#lastId = null;
    }
    if (signal.aborted) return;
    request.abort();
    this.#happened("ended");
  }

  /** By the JobManager: each answer is asked for. By another, who may let it pass soon: it is asked again. */
  async #refused(answer: Response, signal: AbortSignal): Promise<void> {
    const text = await answer.text();
    if (signal.aborted) return;
    this.#request.abort();
    if (answer.ok) this.#say({ trouble: NO_JOBMANAGER });
    if (!isOfAnother(answer)) {
      this.#happened("refused");
      return;
    }
    this.#say({ trouble: sentencesOf(answer.status, jsonIn(text)).join(" ") });
    this.#happened("ended");
  }

  #url(): string {
    const asked = new URLSearchParams();
    for (const topic of this.#topics) {
      const [kind = "", id] = topic.split("/", 2);
      if (id !== undefined) asked.append(kind, id);
    }
    if (this.#lastId !== null) asked.set("lastEventId", this.#lastId);
    return `/unistream/events?${asked.toString()}`;
  }

  async #read(body: ReadableStreamDefaultReader<Uint8Array>, signal: AbortSignal): Promise<void> {
    const reader = new EventReader();
    for (let piece = await body.read(); !piece.done; piece = await body.read()) {
      if (signal.aborted) return;
      const events = reader.push(piece.value);
      this.#happened("heard");
      const changed = new Set(events.flatMap((event) => this.#take(event) ?? []));
      this.#show(changed);
      this.#say({ heardMs: this.#world.wallMs(), trouble: null });
    }
  }

  /** The topic that this has changed, if it has. Throws SyntaxError: the server speaks something else. */
  #take({ id, data }: StreamEvent): string | null {
    const event = JSON.parse(data) as LiveEvent;
    const { pictures, outcome } = taken(this.#pictures, event);
    if (outcome === "lost") throw new RangeError("a change is not of what is here");
    this.#pictures = pictures;
    if (id !== null) this.#lastId = id;
    if (event.event === "hello") this.#greeted(event.version, event.now_ms);
    if (event.event === "beat") {
      this.#clock.heard(event.now_ms, this.#world.wallMs());
      this.#lookedMs = event.looked_ms;
      const { late_since_ms: lateMs } = event;
      this.#say({ lateSinceMs: lateMs === null ? null : this.#clock.localOf(lateMs) });
    }
    if (event.event === "refused") {
      void this.#queries?.invalidateQueries({ queryKey: keyOf(event.topic), exact: true });
    }
    return outcome === "changed" && "topic" in event ? event.topic : null;
  }

  #greeted(serverVersion: string, nowMs: number): void {
    const localMs = this.#world.wallMs();
    this.#clock.heard(nowMs, localMs);
    this.#lookedMs = null;
    this.#retry();
    this.#say({ serverVersion, lateSinceMs: null, nowMs: this.#clock.at(localMs) });
  }

  #show(topics: ReadonlySet<string>): void {
    for (const topic of topics) {
      const picture = this.#pictures.get(topic);
      if (picture === undefined) continue;
      const updatedAt = this.#clock.localOf(picture.atMs);
      this.#queries?.setQueryData(keyOf(topic), picture.whole, { updatedAt });
    }
  }
}

/** The topic of a query; null: it is asked for in another way. */
export function topicOf(key: QueryKey): string | null {
  const [kind, id] = key;
  if (kind === OVERVIEW && key.length === 1) return OVERVIEW;
  const isOfJob = (kind === "job" || kind === "checkpoints") && key.length === 2;
  return isOfJob && typeof id === "string" && /^[0-9a-f]{32}$/i.test(id)
    ? `${kind}/${id.toLowerCase()}`
    : null;
}

function keyOf(topic: string): QueryKey {
  return topic.split("/", 2);
}

/** What a query knows of its answers. */
interface Asked {
  readonly data: unknown;
  readonly dataUpdatedAt: number;
  readonly errorUpdatedAt: number;
}

function askedMs({ dataUpdatedAt, errorUpdatedAt }: Asked): number {
  return Math.max(dataUpdatedAt, errorUpdatedAt);
}

/** A job that has ended does not change, but the history may lose it. */
function hasEnded(data: unknown): boolean {
  return typeof data === "object" && data !== null && "ended_ms" in data && data.ended_ms !== null;
}

export const live = new Live();

// @vitest-environment jsdom
import { QueryClient, QueryObserver } from "@tanstack/react-query";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";

import { POLLED_MS } from "./connection";
import { Live } from "./live";
import { NO_JOBMANAGER, STANDBY_HEADER } from "./refusals";

const JOB = "a".repeat(32);
const YEAR = 365 * 86_400_000;

/** One request for the stream, answered by hand. */
class Request {
  #body: ReadableStreamDefaultController<Uint8Array> | undefined;
  #answer: (answer: Response) => void = () => undefined;
  #fail: (error: Error) => void = () => undefined;

  constructor(
    readonly url: string,
    readonly signal: AbortSignal,
  ) {}

  asked(): Promise<Response> {
    return new Promise((resolve, reject) => {
      this.#answer = resolve;
      this.#fail = reject;
      this.signal.addEventListener("abort", () => {
        reject(new DOMException("aborted", "AbortError"));
      });
    });
  }

  async open(...events: object[]): Promise<void> {
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        this.#body = controller;
      },
    });
    this.#answer(new Response(body, { headers: { "content-type": "text/event-stream; charset=utf-8" } }));
    await this.send(...events);
  }

  async send(...events: object[]): Promise<void> {
    const text = events.map(
      (event) => `id: ${JSON.stringify(event).length}\ndata: ${JSON.stringify(event)}\n\n`,
    );
    this.#body?.enqueue(new TextEncoder().encode(text.join("")));
    await vi.advanceTimersByTimeAsync(0);
  }

  async end(): Promise<void> {
    if (this.#body === undefined) this.#fail(new TypeError("network"));
    else this.#body.error(new TypeError("network"));
    await vi.advanceTimersByTimeAsync(0);
  }

  async refuse(status: number, headers: Record<string, string> = {}, body = "{}"): Promise<void> {
    this.#answer(new Response(body, { status, headers: { "content-type": "application/json", ...headers } }));
    await vi.advanceTimersByTimeAsync(0);
  }
}

const hello = { event: "hello", stream: "s", version: "1", cluster: "c", now_ms: YEAR };
const overview = (version: number, workers: number) => ({
  event: "overview",
  topic: "overview",
  version,
  at_ms: YEAR + version,
  whole: { now_ms: YEAR, workers, jobs: [] },
});
const change = (base: number, version: number, workers: number) => ({
  event: "change",
  topic: "overview",
  base,
  version,
  at_ms: YEAR + version,
  fields: { workers },
  rows: [],
  order: null,
});

describe("what pages show is kept as it is", () => {
  let queries: QueryClient;
  let requests: Request[];
  let asked: string[];
  let isShown: boolean;
  let live: Live;
  let stop: () => void;

  const last = (): Request => {
    const found = requests.at(-1);
    if (found === undefined) throw new Error("nothing was asked for");
    return found;
  };
  const workers = () => queries.getQueryData<{ workers: number }>(["overview"])?.workers;
  const show = (...key: string[]) =>
    new QueryObserver(queries, {
      queryKey: key,
      queryFn: () => {
        asked.push(key.join("/"));
        return live.picture(key.join("/")) ?? { workers: 0 };
      },
    }).subscribe(() => undefined);

  beforeEach(async () => {
    vi.useFakeTimers({ now: 1_000_000 });
    [queries, requests, asked, isShown] = [new QueryClient(), [], [], true];
    live = new Live({
      fetch: (url, { signal }) => {
        const request = new Request(url, signal ?? new AbortController().signal);
        requests.push(request);
        return request.asked();
      },
      wallMs: () => Date.now(),
      steadyMs: () => Date.now(),
      chance: () => 1,
      isShown: () => isShown,
    });
    show("overview");
    stop = live.start(queries);
    await vi.advanceTimersByTimeAsync(100);
  });

  afterEach(() => {
    stop();
    queries.clear();
    vi.useRealTimers();
  });

  test("by pictures and changes, at the time of the cluster", async () => {
    await last().open(hello, overview(1, 3));
    expect([workers(), live.status().phase, live.status().nowMs]).toEqual([3, "open", YEAR]);
    await last().send(change(1, 2, 4));
    expect(workers()).toBe(4);
    expect(live.holdsUntilMs("overview")).toBe(YEAR + 2);
    await last().send({ event: "beat", now_ms: YEAR + 9, looked_ms: YEAR + 8, late_since_ms: null });
    expect(live.holdsUntilMs("overview")).toBe(YEAR + 8);
  });

  test("a stream that breaks goes on from its last id", async () => {
    await last().open(hello, overview(1, 3));
    await last().end();
    expect(live.status().phase).toBe("waiting");
    expect(live.picture("overview")).toBeUndefined();
    await vi.advanceTimersByTimeAsync(1_000);
    expect(requests).toHaveLength(2);
    expect(last().url).toContain(`lastEventId=${JSON.stringify(overview(1, 3)).length}`);
    await last().open(hello, change(1, 2, 5));
    expect(workers()).toBe(5);
  });

  test("a change of what is not here leads to a whole picture", async () => {
    await last().open(hello, overview(1, 3));
    await last().send(change(7, 8, 9));
    expect([workers(), last().signal.aborted]).toEqual([3, true]);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(requests).toHaveLength(2);
    expect(last().url).not.toContain("lastEventId");
  });

  test("a page of a job follows it, and leaves it", async () => {
    await last().open(hello);
    const leave = show("job", JOB);
    show("plan", JOB);
    await vi.advanceTimersByTimeAsync(100);
    expect(last().url).toContain(`job=${JOB}`);
    expect(requests[0]?.signal.aborted).toBe(true);
    leave();
    await vi.advanceTimersByTimeAsync(100);
    expect(last().url).not.toContain("job=");
    expect(requests).toHaveLength(3);
  });

  test("a job that is gone is asked for, so that the page says what the server does", async () => {
    show("job", JOB);
    await vi.advanceTimersByTimeAsync(100);
    asked.length = 0;
    await last().open(hello, {
      event: "refused",
      topic: `job/${JOB}`,
      version: 2,
      at_ms: 1,
      status: 404,
      errors: [],
    });
    await vi.advanceTimersByTimeAsync(10);
    expect(asked).toEqual([`job/${JOB}`]);
    expect(live.status().phase).toBe("open");
  });

  test("a job that has ended is asked for now and then where no stream gets through: it may be removed", async () => {
    new QueryObserver(queries, {
      queryKey: ["job", JOB],
      queryFn: () => {
        asked.push("job");
        return { ended_ms: 5 };
      },
    }).subscribe(() => undefined);
    await last().refuse(503);
    await vi.advanceTimersByTimeAsync(1_000);
    asked.length = 0;
    await vi.advanceTimersByTimeAsync(20_000);
    expect(asked.filter((one) => one === "job")).toEqual([]);
    await vi.advanceTimersByTimeAsync(15_000);
    expect(asked.filter((one) => one === "job")).toEqual(["job"]);
  });

  test.each([
    ["a proxy that holds the stream back", () => vi.advanceTimersByTimeAsync(8_000)],
    ["a server that gives none", () => last().refuse(503)],
  ])("%s: each answer is asked for, until a stream comes", async (_, happens) => {
    asked.length = 0;
    await happens();
    await vi.advanceTimersByTimeAsync(3_000);
    expect(live.status().polls).toBe(true);
    expect(asked.length).toBeGreaterThanOrEqual(2);
    await vi.advanceTimersByTimeAsync(POLLED_MS);
    await last().open(hello, overview(1, 3));
    asked.length = 0;
    await last().send({ event: "beat", now_ms: YEAR, looked_ms: YEAR, late_since_ms: null });
    await vi.advanceTimersByTimeAsync(3_000);
    expect([live.status().polls, asked]).toEqual([false, []]);
  });

  test.each<[string, number, Record<string, string>, string]>([
    ["a login that has ended", 401, {}, "asks who you are"],
    ["a proxy that reaches nobody", 502, {}, "does not reach it"],
    ["a standby without a leader", 503, { [STANDBY_HEADER]: "1" }, "nobody leads"],
  ])("%s: it is said, and the stream is asked for again soon", async (_, status, headers, sentence) => {
    await last().open(hello, overview(1, 3));
    await last().end();
    await vi.advanceTimersByTimeAsync(1_000);
    const body = status === 503 ? '{"errors": ["this master stands by: nobody leads now"]}' : "<h1>no</h1>";
    await last().refuse(status, headers, body);
    expect(live.status()).toMatchObject({ phase: "waiting", polls: false });
    expect(live.status().trouble).toContain(sentence);
    await vi.advanceTimersByTimeAsync(5_000);
    expect(requests.length).toBeGreaterThanOrEqual(3);
    await last().open(hello, overview(2, 4));
    expect([workers(), live.status().trouble]).toEqual([4, null]);
  });

  test("what could not be asked for is asked again when somebody answers", async () => {
    let isAway = true;
    new QueryObserver(queries, {
      queryKey: ["plan", JOB],
      retry: false,
      queryFn: () => (isAway ? Promise.reject(new Error("away")) : "a plan"),
    }).subscribe(() => undefined);
    await vi.advanceTimersByTimeAsync(10);
    expect(queries.getQueryState(["plan", JOB])?.status).toBe("error");
    isAway = false;
    await last().open(hello);
    await vi.advanceTimersByTimeAsync(10);
    expect(queries.getQueryData(["plan", JOB])).toBe("a plan");
  });

  test("a page of a login in place of the stream is said", async () => {
    await last().refuse(200, { "content-type": "text/html" }, "<h1>Sign in</h1>");
    expect(live.status()).toMatchObject({ polls: true, trouble: NO_JOBMANAGER });
  });

  test("a hidden page follows nothing, and goes on where it was", async () => {
    await last().open(hello, overview(1, 3));
    isShown = false;
    document.dispatchEvent(new Event("visibilitychange"));
    expect(last().signal.aborted).toBe(true);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(requests).toHaveLength(1);
    isShown = true;
    document.dispatchEvent(new Event("visibilitychange"));
    expect(requests).toHaveLength(2);
    expect(last().url).toContain("lastEventId");
  });

  test("what hangs in the cluster is said, by the clock of this browser", async () => {
    await last().open(hello, { event: "beat", now_ms: YEAR, looked_ms: null, late_since_ms: YEAR - 9_000 });
    expect(live.status().lateSinceMs).toBe(Date.now() - 9_000);
  });
});

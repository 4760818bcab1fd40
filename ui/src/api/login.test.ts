// @vitest-environment jsdom
import "../../stories/jsdom";

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";

import { client } from "./client";
import { OWN_PAGE_HEADER } from "./headers";
import { begin, signInBy, signOut } from "./login";
import { OTHERS_MS, Session, session } from "./session";

const GOOD = "unistream_a_1";
const NEW = "unistream_b_2";
const DENIED = "this cluster answers its owner, and who has a token";
const USED = "the code of this link was used, or has expired";
const BROWSER = JSON.stringify({ text: NEW, isOfLink: true });

interface Asked {
  readonly method: string;
  readonly path: string;
  readonly token: string | null;
  readonly own: string | null;
  readonly body: unknown;
}

function json(status: number, body: unknown, headers: Record<string, string> = {}): Response {
  return new Response(JSON.stringify(body), {
    status,
    headers: { "content-type": "application/json", ...headers },
  });
}

function unknown(why: string): Response {
  return json(401, { errors: [why] }, { "www-authenticate": "Bearer" });
}

/** A cluster that takes two tokens, and the code "good" once. */
class Cluster {
  readonly asked: Asked[] = [];
  readonly taken = new Set([GOOD]);
  needsTokens = true;
  isAway = false;
  #codes = new Set(["good"]);

  readonly fetch = (request: Request): Promise<Response> => {
    const { pathname: path } = new URL(request.url);
    const token = request.headers.get("authorization")?.replace("Bearer ", "") ?? null;
    const body: unknown = typeof request.body === "string" ? JSON.parse(request.body) : null;
    this.asked.push({ method: request.method, path, token, own: request.headers.get(OWN_PAGE_HEADER), body });
    if (this.isAway) return Promise.reject(new TypeError("Failed to fetch"));
    return Promise.resolve(this.#answer(path, request.method, token, body));
  };

  #answer(path: string, method: string, token: string | null, body: unknown): Response {
    if (path === "/unistream/login") {
      const { code } = body as { code: string };
      if (!this.#codes.delete(code)) return unknown(USED);
      this.taken.add(NEW);
      return json(201, { token: NEW });
    }
    if (this.needsTokens && (token === null || !this.taken.has(token))) return unknown(DENIED);
    if (method === "DELETE") this.taken.delete(token ?? "");
    return json(200, { token: "a", name: "reader", scope: "read", expiresMs: null });
  }
}

describe("how somebody comes in", () => {
  let cluster: Cluster;
  let one: Session;
  let end: AbortController;
  let stored: Map<string, string>;
  let others: { onmessage: BroadcastChannel["onmessage"]; postMessage: (data: unknown) => void };

  beforeEach(() => {
    vi.useFakeTimers();
    cluster = new Cluster();
    end = new AbortController();
    vi.stubGlobal("fetch", cluster.fetch);
    stored = new Map();
    others = { onmessage: null, postMessage: () => undefined };
    one = new Session({
      storage: () => ({
        getItem: (key) => stored.get(key) ?? null,
        setItem: (key, value) => stored.set(key, value),
        removeItem: (key) => stored.delete(key),
      }),
      channel: () => others,
      newId: () => "id",
    });
    history.replaceState({ of: "the router" }, "", "/ui/jobs/a?vertex=b");
  });

  afterEach(() => {
    end.abort();
    vi.useRealTimers();
    vi.unstubAllGlobals();
  });

  const comes = async () => {
    const begun = begin(one, end.signal);
    await vi.advanceTimersByTimeAsync(OTHERS_MS);
    await begun;
  };
  const opened = (hash: string) => {
    history.replaceState({ of: "the router" }, "", `/ui/jobs/a?vertex=b${hash}`);
  };

  test("by a link, once, and its code stands in the address no more", async () => {
    opened("#login=good");
    const begun = begin(one, end.signal);
    expect(location.href).not.toContain("good");
    expect(location.pathname + location.search).toBe("/ui/jobs/a?vertex=b");
    expect(history.state).toEqual({ of: "the router" });
    await begun;
    expect([one.state().is, one.token()?.text]).toEqual(["in", NEW]);
    expect([...stored.values()]).toEqual([BROWSER]);
    expect(cluster.asked).toEqual([
      { method: "POST", path: "/unistream/login", token: null, own: "1", body: { code: "good" } },
    ]);
  });

  test("not by a code that was used, in the words of the cluster", async () => {
    opened("#login=bad");
    await comes();
    expect(location.hash).toBe("");
    expect(one.state()).toEqual({ is: "out", why: USED, isRefusal: true, code: null, goesOn: false });
    expect(stored.size).toBe(0);
  });

  test("not by a code that was used, although this tab may go on as before", async () => {
    stored.set("unistream-session", JSON.stringify({ text: GOOD, isOfLink: false }));
    opened("#login=bad");
    await comes();
    expect(one.state()).toMatchObject({ is: "out", why: USED, goesOn: true });
    expect(one.token()?.text).toBe(GOOD);
  });

  test("by a link that is opened in a tab that is there", async () => {
    stored.set("unistream-session", JSON.stringify({ text: GOOD, isOfLink: false }));
    await comes();
    expect(one.token()?.text).toBe(GOOD);
    opened("#login=good");
    dispatchEvent(new Event("hashchange"));
    expect([location.hash, one.state().is]).toEqual(["", "starting"]);
    await vi.advanceTimersByTimeAsync(0);
    expect([one.state().is, one.token()?.text]).toEqual(["in", NEW]);
  });

  test("by a link that nobody has answered to, when it is tried again", async () => {
    cluster.isAway = true;
    opened("#login=good");
    await comes();
    expect(one.state()).toMatchObject({ is: "out", code: "good" });
    cluster.isAway = false;
    expect(await signInBy("http://127.0.0.1:8081/ui/#login=good", one)).toBeNull();
    expect(one.token()?.text).toBe(NEW);
  });

  test("as before, when the page is loaded again: nobody is asked first", async () => {
    stored.set("unistream-session", BROWSER);
    await comes();
    expect([one.state().is, one.token()?.text, cluster.asked]).toEqual(["in", NEW, []]);
  });

  test("where nobody needs a token, without one and without waiting", async () => {
    cluster.needsTokens = false;
    await begin(one, end.signal);
    expect([one.state().is, one.token(), stored.size]).toEqual(["in", null, 0]);
  });

  test("by another tab that is signed in", async () => {
    others.postMessage = (data) => {
      if ((data as { is: string }).is !== "asks") return;
      const message = { is: "gives", id: "id", token: { text: GOOD, isOfLink: true } };
      others.onmessage?.call(others as BroadcastChannel, { data: message } as MessageEvent<unknown>);
    };
    await comes();
    expect([one.state().is, one.token()]).toEqual(["in", { text: GOOD, isOfLink: true }]);
  });

  test("not where a token is wanted and none is here", async () => {
    await comes();
    expect(one.state()).toEqual({ is: "out", why: null, isRefusal: false, code: null, goesOn: false });
    expect(cluster.asked).toHaveLength(1);
  });

  test("to pages that say themselves that nobody answers", async () => {
    cluster.isAway = true;
    await comes();
    expect(one.state().is).toBe("in");
  });

  test.each([
    ["a token that is taken", ` ${GOOD}\n`, null],
    ["one that is not", "unistream_c_3", DENIED],
    ["what no header can hold", "unistream_ä", "This is no token: it has characters that none has."],
    ["several words", "Bearer x", "This is no token: it has characters that none has."],
  ])("by what is typed: %s", async (_, typed, why) => {
    await comes();
    expect(await signInBy(typed, one)).toBe(why);
    expect(one.state().is).toBe(why === null ? "in" : "out");
    expect(one.token()).toEqual(why === null ? { text: GOOD, isOfLink: false } : null);
  });

  test("by what is typed while nobody answers", async () => {
    await comes();
    cluster.isAway = true;
    expect(await signInBy(GOOD, one)).toContain("does not answer");
    expect([one.state().is, stored.size]).toEqual(["out", 0]);
  });

  test.each([
    [true, NEW, false],
    [false, GOOD, true],
  ])("and out again: a token of a link (%s) ends with it", async (isOfLink, text, goesOn) => {
    cluster.taken.add(NEW);
    one.begin();
    one.signIn({ text, isOfLink });
    await signOut(one);
    expect([one.state().is, one.token(), stored.size]).toEqual(["out", null, 0]);
    expect(cluster.taken.has(text)).toBe(goesOn);
  });
});

describe("requests of pages", () => {
  afterEach(() => {
    vi.unstubAllGlobals();
    session.signOut();
  });

  test("present the token, and a JobManager that does not take it brings the sign-in page", async () => {
    const cluster = new Cluster();
    vi.stubGlobal("fetch", cluster.fetch);
    session.signIn({ text: GOOD, isOfLink: true });
    await client.GET("/unistream/overview");
    expect(cluster.asked.at(-1)).toMatchObject({ token: GOOD, own: "1" });
    expect(cluster.asked.every(({ path }) => !path.includes(GOOD))).toBe(true);
    cluster.taken.clear();
    await Promise.all(Array.from({ length: 5 }, () => client.GET("/unistream/overview")));
    await vi.waitFor(() => {
      expect(session.state().is).toBe("out");
    });
    expect(session.state()).toMatchObject({ is: "out", why: DENIED, isRefusal: true });
    expect(session.token()).toBeNull();
  });

  test.each([
    [
      "a login of somebody else",
      new Response("<h1>no</h1>", { status: 401, headers: { "www-authenticate": "Basic" } }),
    ],
    ["a gateway with tokens of its own", json(401, { message: "no" }, { "www-authenticate": "Bearer" })],
    ["a scope that is too small", json(403, { errors: ["this needs 'operate'"] })],
  ])("%s signs nobody out", async (_, answer) => {
    vi.stubGlobal("fetch", () => Promise.resolve(answer));
    session.signIn({ text: GOOD, isOfLink: true });
    await client.GET("/unistream/overview");
    expect([session.state().is, session.token()?.text]).toEqual(["in", GOOD]);
  });
});

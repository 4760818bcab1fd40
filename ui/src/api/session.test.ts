import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";

import { OTHERS_MS, Session, type Token } from "./session";

const MINE: Token = { text: "unistream_a_1", isOfLink: true };
const OTHER: Token = { text: "unistream_b_2", isOfLink: false };

type Channel = Pick<BroadcastChannel, "postMessage" | "onmessage">;

/** Tabs of one origin, each with a storage of its own. */
class Origin {
  readonly #channels: Channel[] = [];

  tab(storage = new Map<string, string>()): Session {
    const channel: Channel = {
      onmessage: null,
      postMessage: (data: unknown) => {
        for (const other of this.#channels.filter((one) => one !== channel)) say(other, data);
      },
    };
    this.#channels.push(channel);
    const made = new Session({
      storage: () => ({
        getItem: (key) => storage.get(key) ?? null,
        setItem: (key, value) => storage.set(key, value),
        removeItem: (key) => storage.delete(key),
      }),
      channel: () => channel,
      newId: () => `${this.#channels.length}`,
    });
    made.begin();
    return made;
  }

  /** What a tab of another version may say. */
  say(data: unknown): void {
    for (const channel of this.#channels) say(channel, data);
  }
}

function say(channel: Channel, data: unknown): void {
  channel.onmessage?.call(channel as BroadcastChannel, { data } as MessageEvent<unknown>);
}

describe("who a tab is", () => {
  let origin: Origin;

  beforeEach(() => {
    vi.useFakeTimers();
    origin = new Origin();
  });

  afterEach(() => {
    vi.useRealTimers();
  });

  test("a tab that is loaded again has its token", () => {
    const storage = new Map<string, string>();
    const before = origin.tab(storage);
    before.signIn(MINE);
    expect([...storage.values()]).toEqual([JSON.stringify(MINE)]);
    expect(origin.tab(storage).token()).toEqual(MINE);
    before.signOut();
    expect([...storage.values()]).toEqual([]);
  });

  test.each([
    ["nothing", ""],
    ["no JSON", "{"],
    ["something else", '{"text": 5}'],
    ["null", "null"],
  ])("what is stored and is %s is no token", (_, text) => {
    const storage = new Map([["unistream-session", text]]);
    expect(origin.tab(storage).token()).toBeNull();
  });

  test("a new tab gets the token of one that is signed in, and keeps it", async () => {
    origin.tab().leave();
    const first = origin.tab();
    first.signIn(MINE);
    origin.tab();
    const found = origin.tab().ofOthers();
    await vi.advanceTimersByTimeAsync(OTHERS_MS);
    expect(await found).toEqual(MINE);
  });

  test("where nobody is signed in a new tab waits for a moment", async () => {
    origin.tab().enter();
    const found = origin.tab().ofOthers();
    await vi.advanceTimersByTimeAsync(OTHERS_MS);
    expect(await found).toBeNull();
  });

  test("a tab that waits for others hears of who signs in meanwhile", async () => {
    const [one, second] = [origin.tab(), origin.tab()];
    const found = one.ofOthers();
    second.signIn(MINE);
    await vi.advanceTimersByTimeAsync(OTHERS_MS);
    expect(await found).toEqual(MINE);
  });

  test("a tab takes only what it has asked for", async () => {
    const first = origin.tab();
    origin.say({ is: "gives", id: "1", token: OTHER });
    const found = first.ofOthers();
    origin.say({ is: "gives", id: "of somebody else", token: OTHER });
    origin.say({ is: "gives", id: "1", token: "unistream_b_2" });
    await vi.advanceTimersByTimeAsync(OTHERS_MS);
    expect(await found).toBeNull();
  });

  test.each([null, "left", { is: "left" }, { is: "came" }, { is: "asks" }, { is: "grows" }, 7])(
    "what a tab says that nobody understands changes nothing: %o",
    (data) => {
      const [first, second] = [origin.tab(), origin.tab()];
      first.signIn(MINE);
      second.leave();
      origin.say(data);
      expect([first.state().is, first.token(), second.state().is]).toEqual(["in", MINE, "out"]);
    },
  );

  test("who signs in does so in the tabs that wait, and in no other", () => {
    const [waits, works, begins, comes] = [origin.tab(), origin.tab(), origin.tab(), origin.tab()];
    waits.leave();
    works.signIn(OTHER);
    waits.leave();
    comes.signIn(MINE);
    expect([waits.token(), works.token(), begins.token()]).toEqual([MINE, OTHER, null]);
    expect([waits.state().is, works.state().is, begins.state().is]).toEqual(["in", "in", "starting"]);
  });

  test("who signs out does so in all tabs with the same token", () => {
    const [first, second, third] = [origin.tab(), origin.tab(), origin.tab()];
    first.signIn(MINE);
    second.signIn(MINE);
    third.signIn(OTHER);
    expect(first.signOut()).toEqual(MINE);
    expect([first, second, third].map((one) => one.token())).toEqual([null, null, OTHER]);
    expect([first, second, third].map((one) => one.state().is)).toEqual(["out", "out", "in"]);
    expect(second.state()).toMatchObject({ why: "Another tab of this browser has signed out." });
  });

  const denied = async (one: Session, text: string | null, times = 1) => {
    for (let request = 0; request < times; request += 1) void one.denied(text, "it was revoked");
    await vi.advanceTimersByTimeAsync(OTHERS_MS);
  };

  test("a token that is taken no more is forgotten, once", async () => {
    const one = origin.tab();
    one.signIn(MINE);
    const seen: string[] = [];
    one.subscribe(() => seen.push(one.state().is));
    await denied(one, MINE.text, 20);
    expect(seen).toEqual(["starting", "out"]);
    expect(one.state()).toEqual({
      is: "out",
      why: "it was revoked",
      isRefusal: true,
      code: null,
      goesOn: false,
    });
    expect(one.token()).toBeNull();
  });

  test("a tab that was not looked at takes the newer token of another one", async () => {
    const [slept, newer] = [origin.tab(), origin.tab()];
    slept.signIn(MINE);
    newer.signIn(OTHER);
    expect(slept.token()).toEqual(MINE);
    await denied(slept, MINE.text);
    expect([slept.state().is, slept.token()]).toEqual(["in", OTHER]);
  });

  test("tabs do not give each other what is taken no more for ever", async () => {
    const [one, second, third] = [origin.tab(), origin.tab(), origin.tab()];
    one.signIn(MINE);
    second.signIn(OTHER);
    third.signIn(MINE);
    await denied(one, MINE.text);
    expect(one.token()).toEqual(OTHER);
    await denied(one, OTHER.text);
    expect([one.state().is, one.token()]).toEqual(["out", null]);
  });

  test("an answer to a token of before signs nobody out", async () => {
    const one = origin.tab();
    one.signIn(OTHER);
    one.signIn(MINE);
    await denied(one, OTHER.text);
    await denied(one, null);
    expect([one.state().is, one.token()]).toEqual(["in", MINE]);
  });

  test("who never had a token is not blamed", async () => {
    const one = origin.tab();
    one.enter();
    await denied(one, null);
    expect(one.state()).toMatchObject({ is: "out", why: null, isRefusal: false });
  });

  test("where there is a token all the same, one can go on", () => {
    const one = origin.tab();
    one.adopt(MINE);
    one.leave({ why: "the code was used", isRefusal: true });
    expect(one.state()).toMatchObject({ is: "out", goesOn: true });
  });
});

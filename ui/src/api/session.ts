/** A token of the cluster. `isOfLink`: it was made for this browser, and ends when that signs out. */
export interface Token {
  readonly text: string;
  readonly isOfLink: boolean;
}

/** Nobody is signed in, and why. */
export interface Out {
  readonly is: "out";
  /** One sentence; null: nobody was signed in before. */
  readonly why: string | null;
  readonly isRefusal: boolean;
  /** Of a link that nobody has answered to: it can be tried again. */
  readonly code: string | null;
  /** There is a token all the same: it was the code of a link that was refused. */
  readonly goesOn: boolean;
}

export type SessionState = { readonly is: "starting" } | { readonly is: "in" } | Out;

/** What tabs of one origin say to each other. */
type Message =
  | { readonly is: "asks"; readonly id: string }
  | { readonly is: "gives"; readonly id: string; readonly token: Token }
  | { readonly is: "came"; readonly token: Token }
  | { readonly is: "left"; readonly text: string };

/** What a browser has, and a test passes. */
export interface SessionWorld {
  readonly storage: () => Pick<Storage, "getItem" | "setItem" | "removeItem">;
  readonly channel: () => Pick<BroadcastChannel, "postMessage" | "onmessage">;
  readonly newId: () => string;
}

const NAME = "unistream-session";
/** A tab that is looked at answers within some ms; one that the browser has put to sleep never does. */
export const OTHERS_MS = 250;

const BROWSER: SessionWorld = {
  storage: () => sessionStorage,
  channel: () => new BroadcastChannel(NAME),
  newId: () => crypto.getRandomValues(new Uint32Array(4)).join("-"),
};

/**
 * Who this tab is for the cluster. Its token is kept for the tab alone, and other tabs of the origin that ask for it get
 * it; it is in no URL, and in no storage that outlives the tab.
 */
export class Session {
  readonly #world: SessionWorld;
  readonly #listeners = new Set<() => void>();
  #state: SessionState = { is: "starting" };
  #token: Token | null = null;
  /** Texts that the cluster takes no more, which a tab that was not looked at may still have. */
  readonly #denied = new Set<string>();
  #channel: ReturnType<SessionWorld["channel"]> | null = null;
  #asked: { readonly id: string; readonly got: (token: Token) => void } | null = null;

  constructor(world: SessionWorld = BROWSER) {
    this.#world = world;
  }

  readonly state = (): SessionState => this.#state;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  /** What this tab knows from before it was loaded again; from now on it listens to others. */
  begin(): void {
    this.#token = parsedToken(this.#world.storage().getItem(NAME));
    this.#channel = this.#world.channel();
    this.#channel.onmessage = ({ data }: MessageEvent<unknown>) => {
      if (isMessage(data)) this.#hear(data);
    };
  }

  token(): Token | null {
    return this.#token;
  }

  /** The token of another tab of this browser; null: none answers with one. */
  async ofOthers(): Promise<Token | null> {
    const id = this.#world.newId();
    const found = await new Promise<Token | null>((got) => {
      this.#asked = { id, got };
      this.#post({ is: "asks", id });
      setTimeout(() => {
        got(null);
      }, OTHERS_MS);
    });
    if (this.#asked?.id === id) this.#asked = null;
    return found;
  }

  /** It is found out who somebody is: no page is shown meanwhile. */
  start(): void {
    this.#turn({ is: "starting" });
  }

  /** Pages are shown, to whomever the cluster takes this tab for. */
  enter(): void {
    this.#turn({ is: "in" });
  }

  /** By a token of this tab, which is another tab's that waits, too. */
  signIn(token: Token): void {
    this.#keep(token);
    this.#post({ is: "came", token });
    this.enter();
  }

  /** The cluster takes a token no more that a request of this tab had, or wants one. Another tab may have a newer one. */
  async denied(text: string | null, why: string): Promise<void> {
    if (this.#state.is !== "in" || text !== (this.#token?.text ?? null)) return;
    if (text !== null) this.#denied.add(text);
    this.#keep(null);
    this.start();
    const other = await this.ofOthers();
    if (this.state().is !== "starting") return;
    if (other === null) {
      this.leave(text === null ? {} : { why, isRefusal: true });
      return;
    }
    this.adopt(other);
    this.enter();
  }

  /** This tab shows no pages from now on. */
  leave(out: Partial<Omit<Out, "is" | "goesOn">> = {}): void {
    const first = { why: null, isRefusal: false, code: null };
    this.#turn({ is: "out", ...first, ...out, goesOn: this.#token !== null });
  }

  /** Here, and in all tabs with the same token, which is what is returned. */
  signOut(): Token | null {
    const token = this.#token;
    this.#keep(null);
    if (token !== null) this.#post({ is: "left", text: token.text });
    this.leave({ why: "You have signed out." });
    return token;
  }

  /** For this tab, although another one has it. */
  adopt(token: Token): void {
    this.#keep(token);
  }

  #hear(message: Message): void {
    switch (message.is) {
      case "asks":
        if (this.#state.is === "in" && this.#token !== null) {
          this.#post({ is: "gives", id: message.id, token: this.#token });
        }
        break;
      case "gives":
        if (message.id === this.#asked?.id && !this.#denied.has(message.token.text)) {
          this.#asked.got(message.token);
        }
        break;
      case "came":
        this.#asked?.got(message.token);
        if (this.#state.is === "out") {
          this.#keep(message.token);
          this.enter();
        }
        break;
      case "left":
        if (message.text === this.#token?.text) {
          this.#keep(null);
          this.leave({ why: "Another tab of this browser has signed out." });
        }
        break;
    }
  }

  #post(message: Message): void {
    this.#channel?.postMessage(message);
  }

  #keep(token: Token | null): void {
    this.#token = token;
    if (token === null) this.#world.storage().removeItem(NAME);
    else this.#world.storage().setItem(NAME, JSON.stringify(token));
  }

  #turn(state: SessionState): void {
    this.#state = state;
    for (const listener of [...this.#listeners]) listener();
  }
}

function parsedToken(text: string | null): Token | null {
  try {
    const found: unknown = JSON.parse(text ?? "null");
    return isToken(found) ? found : null;
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}

function isToken(value: unknown): value is Token {
  if (typeof value !== "object" || value === null) return false;
  const { text, isOfLink } = value as Partial<Record<keyof Token, unknown>>;
  return typeof text === "string" && typeof isOfLink === "boolean";
}

/** A tab of another version may say something else. */
function isMessage(value: unknown): value is Message {
  if (typeof value !== "object" || value === null || !("is" in value)) return false;
  const { is, id, token, text } = value as { is: unknown; id?: unknown; token?: unknown; text?: unknown };
  switch (is) {
    case "asks":
      return typeof id === "string";
    case "gives":
      return typeof id === "string" && isToken(token);
    case "came":
      return isToken(token);
    case "left":
      return typeof text === "string";
    default:
      return false;
  }
}

export const session = new Session();

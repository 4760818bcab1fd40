/** What pages use and jsdom lacks. Nothing has a size, so a graph draws no box. */
class Nothing {
  observe(): void {}
  unobserve(): void {}
  disconnect(): void {}
}

/** Node's own wants whole addresses, and signals that are not jsdom's. */
class PageRequest {
  readonly url: string;
  readonly method: string;
  readonly signal: AbortSignal;
  readonly headers: Headers;
  readonly body: unknown;

  constructor(input: string | PageRequest, init: RequestInit = {}) {
    this.url = typeof input === "string" ? new URL(input, location.href).href : input.url;
    this.method = init.method ?? (typeof input === "string" ? "GET" : input.method);
    this.signal = init.signal ?? (typeof input === "string" ? new AbortController().signal : input.signal);
    this.headers = new Headers(init.headers ?? (typeof input === "string" ? {} : input.headers));
    this.body = init.body ?? (typeof input === "string" ? null : input.body);
  }

  clone(): this {
    return this;
  }
}

const NOTHING = () => undefined;

Object.assign(globalThis, {
  Request: PageRequest,
  ResizeObserver: Nothing,
  scrollTo: () => undefined,
  matchMedia: () => ({ matches: false, addEventListener: NOTHING, removeEventListener: NOTHING }),
});

HTMLDialogElement.prototype.showModal = function (this: HTMLDialogElement) {
  this.open = true;
};
URL.createObjectURL = () => "blob:";
URL.revokeObjectURL = NOTHING;
HTMLCanvasElement.prototype.getContext = () => null;

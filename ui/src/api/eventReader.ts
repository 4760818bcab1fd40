/** One event of a stream: its data, and the last id that came by then. */
export interface StreamEvent {
  readonly id: string | null;
  readonly data: string;
}

/** A job of 10,000 subtasks has a picture of 5 MB. */
export const EVENT_CHARS_MAX = 64 * 1024 * 1024;

const LINE_END = /\r\n?|\n/g;

/**
 * Reads text/event-stream as bytes come: lines end with CR, LF or both, a line that begins with a colon says
 * nothing, and neither a line nor a character needs to be whole in one piece.
 */
export class EventReader {
  readonly #decoder = new TextDecoder();
  readonly #charsMax: number;
  #begun = "";
  #afterCr = false;
  #data: string[] = [];
  #id: string | null = null;

  constructor(charsMax = EVENT_CHARS_MAX) {
    this.#charsMax = charsMax;
  }

  /** The events that these bytes complete. Throws RangeError if one has no end. */
  push(bytes: Uint8Array): StreamEvent[] {
    const text = this.#decoder.decode(bytes, { stream: true });
    if (text === "") return [];
    const events: StreamEvent[] = [];
    let from = this.#afterCr && text.startsWith("\n") ? 1 : 0;
    this.#afterCr = text.endsWith("\r");
    LINE_END.lastIndex = from;
    for (let end = LINE_END.exec(text); end !== null; end = LINE_END.exec(text)) {
      this.#take(this.#begun + text.slice(from, end.index), events);
      this.#begun = "";
      from = LINE_END.lastIndex;
    }
    this.#begun += text.slice(from);
    if (this.#begun.length > this.#charsMax) throw new RangeError("an event of the stream has no end");
    return events;
  }

  #take(line: string, events: StreamEvent[]): void {
    if (line === "") {
      if (this.#data.length > 0) events.push({ id: this.#id, data: this.#data.join("\n") });
      this.#data = [];
      return;
    }
    const colon = line.indexOf(":");
    const name = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "data") this.#data.push(value);
    if (name === "id" && !value.includes("\0")) this.#id = value;
  }
}

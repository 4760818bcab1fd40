import { describe, expect, test } from "vitest";

import { EventReader } from "./eventReader";

const bytes = (text: string) => new TextEncoder().encode(text);

/** All events of a stream that comes in pieces. */
function read(...pieces: readonly Uint8Array[]): [string | null, string][] {
  const reader = new EventReader();
  return pieces.flatMap((piece) => reader.push(piece)).map(({ id, data }) => [id, data]);
}

/** Cut after each byte. */
function byteByByte(text: string): Uint8Array[] {
  return [...bytes(text)].map((one) => Uint8Array.of(one));
}

describe("events", () => {
  test.each([
    ["one", "data: a\n\n", [[null, "a"]]],
    [
      "two",
      "data: a\n\ndata: b\n\n",
      [
        [null, "a"],
        [null, "b"],
      ],
    ],
    ["one with an id", "id: 7\ndata: a\n\n", [["7", "a"]]],
    [
      "the id stays",
      "id: 7\ndata: a\n\ndata: b\n\n",
      [
        ["7", "a"],
        ["7", "b"],
      ],
    ],
    [
      "CRLF",
      "id: 7\r\ndata: a\r\n\r\ndata: b\r\n\r\n",
      [
        ["7", "a"],
        ["7", "b"],
      ],
    ],
    [
      "CR",
      "data: a\r\rdata: b\r\r",
      [
        [null, "a"],
        [null, "b"],
      ],
    ],
    ["lines of one event", "data: a\ndata:\ndata:  b\n\n", [[null, "a\n\n b"]]],
    ["comments", ": hello\n\n:\ndata: a\n: x\n\n", [[null, "a"]]],
    ["no space", "data:a\n\n", [[null, "a"]]],
    ["other fields", "event: x\nretry: 5\ndata: a\nfoo\n\n", [[null, "a"]]],
    ["an id alone is no event", "id: 7\n\ndata: a\n\n", [["7", "a"]]],
    ["an id with NUL is none", "id: 7\0\ndata: a\n\n", [[null, "a"]]],
    ["an event without an end is none yet", "data: a\n", []],
    ["a mark of the byte order", "\uFEFFdata: a\n\n", [[null, "a"]]],
    ["any Unicode", "data: \u00e9\u05d0\u{1f600}\u2028x\n\n", [[null, "\u00e9\u05d0\u{1f600}\u2028x"]]],
  ] as const)("%s", (_, text, wanted) => {
    expect(read(bytes(text))).toEqual(wanted);
    expect(read(...byteByByte(text))).toEqual(wanted);
    for (let cut = 0; cut <= bytes(text).length; cut += 1) {
      expect(read(bytes(text).slice(0, cut), bytes(text).slice(cut))).toEqual(wanted);
    }
  });

  test("an event without an end is refused before it fills the memory", () => {
    const reader = new EventReader(100);
    const piece = bytes("x".repeat(50));
    expect([...reader.push(piece), ...reader.push(piece)]).toEqual([]);
    expect(() => reader.push(piece)).toThrow(RangeError);
  });
});

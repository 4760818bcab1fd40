import { describe, expect, test } from "vitest";

import {
  type Act,
  type Connection,
  FIRST_MS,
  GOOD_MS,
  type Happening,
  NOT_SHOWN,
  POLLED_MS,
  SILENT_MS,
  after,
} from "./connection";

type Step = readonly [atMs: number, happening: Happening];

function walked(steps: readonly Step[], chance = 1): { connection: Connection; acts: Act[] } {
  let connection = NOT_SHOWN;
  const acts: Act[] = [];
  for (const [atMs, happening] of steps) {
    const [next, act] = after(connection, happening, atMs, chance);
    connection = next;
    acts.push(act);
  }
  return { connection, acts };
}

const OPEN: Step[] = [
  [0, "shown"],
  [10, "heard"],
];

describe("the one stream of a page", () => {
  test.each<[string, Step[], Act, Connection["phase"], boolean]>([
    ["a page is shown", [[0, "shown"]], "open", "connecting", false],
    ["something comes", OPEN, null, "open", false],
    ["a page is hidden", [...OPEN, [20, "hidden"]], "close", "hidden", false],
    ["nothing happens to a hidden one", [[0, "tick"]], null, "hidden", false],
    ["it is not opened for a hidden page", [[0, "other topics"]], null, "hidden", false],
    ["it is shown again", [...OPEN, [20, "hidden"], [30, "shown"]], "open", "connecting", false],
    ["shown twice", [...OPEN, [20, "shown"]], null, "open", false],
    ["it breaks", [...OPEN, [20, "ended"]], null, "waiting", false],
    ["not at once again", [...OPEN, [20, "ended"], [21, "tick"]], null, "waiting", false],
    ["but soon", [...OPEN, [20, "ended"], [270, "tick"]], "open", "connecting", false],
    ["other topics", [...OPEN, [20, "other topics"]], "open", "connecting", false],
    ["a short silence", [...OPEN, [10 + SILENT_MS, "tick"]], null, "open", false],
    ["a long silence", [...OPEN, [11 + SILENT_MS, "tick"]], "open", "connecting", false],
    [
      "nothing comes at first",
      [
        [0, "shown"],
        [FIRST_MS + 1, "tick"],
      ],
      "close",
      "waiting",
      true,
    ],
    [
      "the server gives none",
      [
        [0, "shown"],
        [5, "refused"],
      ],
      null,
      "waiting",
      true,
    ],
  ])("%s", (_, steps, act, phase, polls) => {
    const { connection, acts } = walked(steps);
    expect([acts.at(-1), connection.phase, connection.polls]).toEqual([act, phase, polls]);
  });

  test("what breaks again and again is tried less and less often, up to five seconds", () => {
    let connection = walked([[0, "shown"]]).connection;
    const waits = Array.from({ length: 7 }, () => {
      [connection] = after(connection, "ended", 0, 1);
      const { retryMs } = connection;
      [connection] = after(connection, "tick", retryMs, 1);
      return retryMs;
    });
    expect(waits).toEqual([250, 500, 1_000, 2_000, 5_000, 5_000, 5_000]);
    [connection] = after(connection, "heard", 0, 1);
    expect(after(connection, "ended", 0, 0)[0].retryMs).toBe(125);
  });

  test("pieces that come long after each other are held back on the way: each answer is asked for", () => {
    const late = 100 + 2 * SILENT_MS;
    const { connection } = walked([
      ...OPEN,
      [11 + SILENT_MS, "tick"],
      [100 + SILENT_MS, "heard"],
      [late + 1, "tick"],
    ]);
    expect([connection.phase, connection.polls]).toEqual(["waiting", true]);
  });

  test("one silence after a good while is no reason", () => {
    const goodMs = 20 + SILENT_MS + GOOD_MS;
    const steps: Step[] = [...OPEN, [11 + SILENT_MS, "tick"], [12 + SILENT_MS, "heard"], [goodMs, "heard"]];
    const { connection } = walked([...steps, [goodMs + SILENT_MS + 1, "tick"]]);
    expect([connection.phase, connection.polls]).toEqual(["connecting", false]);
  });

  test("while it asks for each answer, it tries a stream now and then, and stops asking when that comes", () => {
    const polled: Step[] = [
      [0, "shown"],
      [5, "refused"],
    ];
    expect(walked([...polled, [4 + POLLED_MS, "tick"]]).acts.at(-1)).toBeNull();
    const again = walked([...polled, [5 + POLLED_MS, "tick"]]);
    expect([again.acts.at(-1), again.connection.polls]).toEqual(["open", true]);
    const { connection } = walked([...polled, [5 + POLLED_MS, "tick"], [6 + POLLED_MS, "heard"]]);
    expect([connection.phase, connection.polls]).toEqual(["open", false]);
  });
});

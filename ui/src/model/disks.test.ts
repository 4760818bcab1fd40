import { expect, test } from "vitest";

import { nameOfDisk, roomOf, toneOfRoom } from "./disks";

test.each<[number | null, number | null, string, string]>([
  [50, 100, "enough", "good"],
  [10, 100, "enough", "good"],
  [9, 100, "scarce", "warn"],
  [1, 100, "full", "bad"],
  [0, 100, "full", "bad"],
  [null, null, "unknown", "quiet"],
  [null, 100, "unknown", "quiet"],
  [1, 0, "unknown", "quiet"],
  [-1, 100, "unknown", "quiet"],
  [1, Infinity, "unknown", "quiet"],
])("%s free of %s: %s", (free_bytes, total_bytes, is, tone) => {
  const room = roomOf({ what: "checkpoints", folder: "/c", free_bytes, total_bytes });
  expect(room.is).toBe(is);
  expect(toneOfRoom(room)).toBe(tone);
});

test("each place has a name of its own", () => {
  const all = (["checkpoints", "savepoints", "jobs", "master"] as const).map(nameOfDisk);
  expect(new Set(all).size).toBe(4);
});

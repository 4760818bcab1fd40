import { describe, expect, test } from "vitest";

import { CERTIFICATES, NOW_MS } from "../../stories/fixtures";
import {
  type Validity,
  inGroups,
  namedViewOf,
  rotatedMs,
  toneOfValidity,
  validityOf,
  validityOfIssued,
  withName,
} from "./certificates";

const DAY_MS = 86_400_000;

describe("certificates", () => {
  test.each<[number, Validity]>([
    [NOW_MS + 8 * DAY_MS, "valid"],
    [NOW_MS + 6 * DAY_MS, "ends soon"],
    [NOW_MS, "has ended"],
  ])("until %s", (until_ms, validity) => {
    expect(validityOf({ until_ms }, NOW_MS)).toBe(validity);
  });

  test.each([
    ["tm-643b78fcd02b", "valid"],
    ["of before", "former"],
    ["ends soon", "ends soon"],
    ["has ended", "has ended"],
  ])("of process %s: %s", (name, validity) => {
    const [one] = withName(CERTIFICATES.processes, name);
    expect(one && validityOfIssued(one, CERTIFICATES)).toBe(validity);
  });

  test.each<[Validity, string]>([
    ["valid", "good"],
    ["ends soon", "warn"],
    ["former", "warn"],
    ["has ended", "bad"],
  ])("%s is %s", (validity, tone) => {
    expect(toneOfValidity(validity)).toBe(tone);
  });

  test("the authority was replaced when the one that issues was made", () => {
    expect(rotatedMs(CERTIFICATES.authorities)).toBe(NOW_MS - DAY_MS);
    expect(rotatedMs(CERTIFICATES.authorities.slice(0, 1))).toBeNull();
    expect(rotatedMs([])).toBeNull();
  });

  test("a fingerprint is read in groups", () => {
    expect(inGroups("8f3a01bc9")).toBe("8f3a 01bc 9");
    expect(inGroups("")).toBe("");
  });

  test.each<[unknown, string]>([
    ["x", "x"],
    [7, "7"],
    [{}, ""],
    [undefined, ""],
  ])("%j in the URL", (q, text) => {
    expect(namedViewOf({ q })).toEqual({ q: text });
  });
});

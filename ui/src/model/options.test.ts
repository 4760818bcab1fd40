import { expect, test } from "vitest";

import type { OptionShown } from "../api/schema";
import { ORIGINS, chosenOptions, originInWords } from "./options";

const OPTIONS: OptionShown[] = [
  { key: "rest.port", value: "8081", origin: "given", doc: "Of the REST API." },
  { key: "parallelism.default", value: "1", origin: "default", doc: "Of vertices that set none." },
  { key: "metadata.url", value: "sqlite:///x", origin: "environment", doc: "The history." },
  { key: "io.tmp.dirs", value: null, origin: "unset", doc: "Folders." },
];

test.each([
  ["", false, ["rest.port", "metadata.url"]],
  ["", true, ["rest.port", "parallelism.default", "metadata.url", "io.tmp.dirs"]],
  ["PARALLEL", false, ["parallelism.default"]],
  ["sqlite", false, ["metadata.url"]],
  ["folders", false, ["io.tmp.dirs"]],
  ["nothing", true, []],
])("%j, all: %s", (text, all, keys) => {
  expect(chosenOptions(OPTIONS, text, all).map(({ key }) => key)).toEqual(keys);
});

test("each origin has words of its own", () => {
  expect(new Set(ORIGINS.map(originInWords)).size).toBe(ORIGINS.length);
});

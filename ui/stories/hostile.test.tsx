// @vitest-environment jsdom
/** What nobody sends, and some cluster will: figures that are none, a clock of another day, states of a later version. */
import { cleanup, render, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";

import "./jsdom";
import { FULL, NOW_MS, RECORDED, answered } from "./recorded";
import { type Answer, Page, answering } from "./story";

const DAY_MS = 86_400_000;
const WAIT_MS = 60_000;
/** In a list: so many fields that no figure needs to be one that was thought of. */
const FIGURES = [-1, Infinity] as const;
/** What no person should read. */
const NO_WORDS = /\bNaN\b|Infinity|undefined|\[object|Invalid Date|∞|Something went wrong/;

const JOB = `/jobs/${RECORDED}`;
/** Each page, and a text of it that has come from no figure. */
const PAGES: readonly (readonly [path: string, shows: string])[] = [
  ["/?which=all", "flights"],
  ["/workers", "tm-"],
  ["/cluster", "high-availability"],
  ["/history", "ended"],
  ["/procedures", "flights"],
  ["/tokens?ended=true", "nightly"],
  ["/hosts", "Let another host join"],
  ["/certificates", "unistream certs rotate"],
  ["/audit", "cancelled the job"],
  ["/submit", "/srv/pipelines"],
  [JOB, "pre-aggregate"],
  [`${JOB}/batch`, "stage"],
  [`${JOB}/timeline`, "Checkpoints"],
  [`${JOB}/checkpoints`, "complete"],
  [`${JOB}/state`, "pre-aggregate"],
  [`${JOB}/commits`, "lake"],
  [`${JOB}/dead-letters`, "fare"],
  [`${JOB}/exceptions`, "fare_of"],
  [`${JOB}/log`, "Copy 1 lines"],
  [`${JOB}/configuration`, "Writes"],
];

/** A number that is a name: two that were different stay so. */
const NAME = /_id$|^(?:pid|epoch|seq|status|attempt|index)$|version/;

/** All that was answered, with each figure in place of what it was. */
function changed(value: unknown, figure: (was: number) => number): unknown {
  if (typeof value === "number") {
    const now = figure(value);
    return Number.isFinite(now) ? now : ENDLESS;
  }
  if (Array.isArray(value)) return value.map((one) => changed(one, figure));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, one]) => [
      name,
      NAME.test(name) && typeof one === "number" ? one : changed(one, figure),
    ]),
  );
}

function answersWith(change: (body: unknown) => unknown): Record<string, Answer> {
  return Object.fromEntries(
    Object.entries(answered(FULL)).map(([path, answer]) => [
      path,
      typeof answer === "object" && "body" in answer ? { body: change(answer.body) } : answer,
    ]),
  );
}

const ENDLESS = "a figure that has no end";

/** JSON has no such figure, but `1e999` is read as one. */
function asSent(answers: Record<string, Answer>): (input: RequestInfo | URL) => Promise<Response> {
  const given = answering({ paths: answers, otherwise: "never" });
  return async (input) => {
    const answer = await given(input);
    const text = (await answer.text()).replaceAll(JSON.stringify(ENDLESS), "1e999");
    return new Response(text, { status: answer.status, headers: answer.headers });
  };
}

/** jsdom does not know an element; and where all figures are one, so are all ids. */
const FORGIVEN = /search|children with the same key/;

const errors: string[] = [];

beforeEach(() => {
  errors.length = 0;
  vi.spyOn(console, "error").mockImplementation((...said: unknown[]) =>
    errors.push(said.map(String).join(" ")),
  );
});

afterEach(() => {
  cleanup();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

async function isShown(path: string, shows: string, answers: Record<string, Answer>): Promise<string> {
  vi.stubGlobal("fetch", asSent(answers));
  const { container } = render(<Page path={path} />);
  await waitFor(
    () => {
      expect(container.textContent).toContain(shows);
    },
    { timeout: WAIT_MS },
  );
  expect(errors.filter((one) => !FORGIVEN.test(one))).toEqual([]);
  return container.textContent;
}

describe.each(FIGURES)("each figure is %s", (figure) => {
  test.each(PAGES)(
    "%s",
    async (path, shows) => {
      const text = await isShown(
        path,
        shows,
        answersWith((body) => changed(body, () => figure)),
      );
      expect(
        NO_WORDS.exec(text)?.map((word) => text.slice(text.indexOf(word) - 80, text.indexOf(word) + 40)) ??
          null,
      ).toBeNull();
    },
    2 * WAIT_MS,
  );
});

describe.each([-DAY_MS, DAY_MS])("the clock of the cluster is %s ms from that of its workers", (off) => {
  test.each(PAGES)(
    "%s",
    async (path, shows) => {
      const text = await isShown(
        path,
        shows,
        answersWith((body) =>
          typeof body === "object" && body !== null && "now_ms" in body
            ? { ...body, now_ms: NOW_MS + off }
            : body,
        ),
      );
      expect(/−\d[^ ]* \w+ ago/.exec(text)?.[0] ?? null).toBeNull(); // nothing was in the future
    },
    2 * WAIT_MS,
  );
});

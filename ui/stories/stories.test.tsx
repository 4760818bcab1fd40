// @vitest-environment jsdom
import { cleanup, render, waitFor } from "@testing-library/react";
import axe from "axe-core";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import "./jsdom";
import { PAGES } from "./pages";
import { PARTS } from "./parts";
import { answering } from "./story";

const SERIOUS = ["serious", "critical"];
/** Of a machine that is overloaded. */
const WAIT_MS = 60_000;
/** What cannot be known without a layout. */
const RULES = { "color-contrast": { enabled: false } };

/** An element of HTML that jsdom does not know. */
const FORGIVEN = /The tag <%s> is unrecognized in this browser.* search$/s;

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

test.each([...PARTS, ...PAGES].map((story) => [`${story.group}: ${story.name}`, story] as const))(
  "%s",
  async (_, { show, shows, answers, isHuge }) => {
    vi.stubGlobal("fetch", answering(answers));
    const { container } = render(show());
    await waitFor(
      () => {
        expect(container.textContent).toContain(shows);
      },
      { timeout: WAIT_MS },
    );
    expect(container.querySelector("script, img")).toBeNull();
    if (isHuge !== true) expect(await seriousOf(container)).toEqual([]);
    expect(errors.filter((error) => !FORGIVEN.test(error))).toEqual([]);
  },
  2 * WAIT_MS,
);

/** What axe finds that keeps somebody from using it. */
async function seriousOf(container: Element): Promise<string[]> {
  const { violations } = await axe.run(container, { resultTypes: ["violations"], rules: RULES });
  return violations
    .filter(({ impact }) => SERIOUS.includes(impact ?? ""))
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`);
}

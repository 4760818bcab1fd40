// @vitest-environment jsdom
import { cleanup, fireEvent, render, waitFor } from "@testing-library/react";
import axe from "axe-core";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import "./jsdom";
import { ACCESS } from "./access";
import { SUBMIT } from "./submit";
import { PAGES } from "./pages";
import { PARTS } from "./parts";
import { DIALOGS_AND_FILES } from "./dialogs";
import { COMPONENTS, drawn, missing, note } from "./covered";
import { drawnIn } from "./drawn";
import { type State, answering, stateOf } from "./story";
import { TABS_AND_PAGES } from "./tabs";

/** axe needs a third of a second for a page. It finds nothing new in one that loads, or says what `Answered` says. */
const LOOKED_AT: ReadonlySet<State | null> = new Set([null, "empty", "full"]);
const SERIOUS = ["serious", "critical"];
/** Of a machine that is overloaded. */
const WAIT_MS = 60_000;
const WAITS = { timeout: WAIT_MS };
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

test.each(
  [...PARTS, ...PAGES, ...TABS_AND_PAGES, ...DIALOGS_AND_FILES, ...ACCESS, ...SUBMIT].map(
    (story) => [`${story.group}: ${story.name}`, story] as const,
  ),
)(
  "%s",
  async (_, story) => {
    const { show, shows, hides = [], typed, press = [], answers } = story;
    vi.stubGlobal("fetch", answering(answers));
    const { container, findAllByRole } = render(show());
    if (typed !== undefined) {
      const [field] = await findAllByRole("textbox", {}, WAITS);
      if (field !== undefined) fireEvent.change(field, { target: { value: typed } });
    }
    for (const wanted of press) {
      const name = (found: string) => found.startsWith(wanted);
      const [first] = await findAllByRole("button", { name }, WAITS);
      if (first !== undefined) fireEvent.click(first);
    }
    await waitFor(() => {
      expect(container.textContent).toContain(shows);
      for (const text of hides) expect(container.textContent).not.toContain(text);
      if (stateOf(story) === "loading") {
        expect(container.querySelector(".skeleton, button[disabled]")).not.toBeNull();
      }
    }, WAITS);
    note(story, drawnIn(container));
    expect(container.querySelector("script, img")).toBeNull();
    if (LOOKED_AT.has(stateOf(story))) expect(await seriousOf(container)).toEqual([]);
    expect(errors.filter((error) => !FORGIVEN.test(error))).toEqual([]);
  },
  2 * WAIT_MS,
);

test("each component is drawn by a story, and what asks the cluster in each state that applies", () => {
  const left = COMPONENTS.flatMap(({ name, component, path }) => {
    const states = drawn.get(component) ?? new Set();
    if (states.size === 0) return [`${name}: no story draws it`];
    const lacks = missing(name, path, states);
    return lacks.length === 0 ? [] : [`${name}: ${lacks.join(", ")}`];
  });
  expect(left).toEqual([]);
});

/** What axe finds that keeps somebody from using it. */
async function seriousOf(container: Element): Promise<string[]> {
  const { violations } = await axe.run(container, { resultTypes: ["violations"], rules: RULES });
  return violations
    .filter(({ impact }) => SERIOUS.includes(impact ?? ""))
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`);
}

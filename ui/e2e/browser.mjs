/**
 * A page of the web UI in a real Chromium, and what no case forgives: an error on the console, a request that fails,
 * a serious finding of axe.
 *
 *     const ui = await opened(url);
 *     await ui.goto(`/jobs/${job}`); // signs in first, by a link, as `unistream ui` prints it
 *     await ui.isAccessible("the page of a job");
 *     await ui.close();   // throws if there was an error
 *
 * UNISTREAM_TOKEN is that of the cluster's owner: it asks for links, and for what no page does.
 */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

import { chromium } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const WAIT_MS = 60_000; // of a machine that is overloaded; otherwise everything is there within a second
const STEP_MS = 200;
const SERIOUS = ["serious", "critical"];

export const LAUNCHED = {
  executablePath: process.env.UNISTREAM_CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--no-proxy-server"],
};

export const SIZES = { wide: { width: 1400, height: 900 }, narrow: { width: 400, height: 800 } };

/** What the cluster at `url` answers its owner. */
export function asOwner(url, init = {}) {
  const headers = { ...init.headers, Authorization: `Bearer ${process.env.UNISTREAM_TOKEN ?? ""}` };
  return fetch(url, { ...init, headers });
}

/** A link that lets one browser in, once. */
export async function linkTo(url) {
  const headers = { "content-type": "application/json" };
  const answer = await asOwner(`${url}/unistream/login-codes`, { method: "POST", body: "{}", headers });
  demand(answer.ok, `there is a code: ${answer.status}`);
  return `${url}/ui/#login=${(await answer.json()).code}`;
}

export async function opened(url, { size = SIZES.wide, colorScheme = "light" } = {}) {
  const browser = await chromium.launch(LAUNCHED);
  const context = await browser.newContext({
    viewport: size,
    colorScheme,
    reducedMotion: "reduce",
    ignoreHTTPSErrors: true, // no browser knows the authority of a cluster that a test has made
    permissions: ["clipboard-read", "clipboard-write"],
  });
  const page = await context.newPage();
  page.setDefaultTimeout(WAIT_MS);
  return new Ui(url, browser, page);
}

class Ui {
  #errors;
  #forgiven;
  #isIn = false;

  /** `seen`: of all tabs. */
  constructor(url, browser, page, seen = { errors: [], forgiven: [] }) {
    this.url = url;
    this.browser = browser;
    this.page = page;
    this.#errors = seen.errors;
    this.#forgiven = seen.forgiven;
    page.on("console", (message) => {
      if (message.type() === "error") this.#errors.push(`console: ${message.text()}`);
    });
    page.on("dialog", (dialog) => {
      this.#errors.push(`dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    page.on("pageerror", (error) => this.#errors.push(`page: ${error.name} ${error.message} ${error.stack}`));
    page.on("requestfailed", (request) => {
      const why = request.failure()?.errorText ?? "";
      // A page that is left gives up what it has asked for.
      if (why !== "net::ERR_ABORTED") this.#errors.push(`${request.method()} ${request.url()}: ${why}`);
    });
    page.on("response", (response) => {
      if (response.status() >= 400) {
        this.#errors.push(`${response.request().method()} ${response.url()}: ${response.status()}`);
      }
    });
  }

  /** As somebody who has a link. */
  async signIn() {
    await this.page.goto(await linkTo(this.url));
    await this.isInside();
  }

  /** There are pages, not the one on which one signs in. From now on `goto` goes to them. */
  async isInside() {
    await this.page.getByRole("navigation", { name: "Pages" }).waitFor();
    this.#isIn = true;
  }

  /** A path of the UI, such as `/jobs/…`. */
  async goto(path) {
    if (!this.#isIn) await this.signIn();
    await this.page.goto(`${this.url}/ui${path}`);
    await this.page.getByRole("heading", { level: 1 }).waitFor();
  }

  /** Another tab of the same browser, for the cluster at `url`. */
  async tab(url = this.url) {
    const page = await this.page.context().newPage();
    page.setDefaultTimeout(WAIT_MS);
    return new Ui(url, this.browser, page, { errors: this.#errors, forgiven: this.#forgiven });
  }

  /** The JSON of a path, as the cluster answers its owner. */
  async json(path) {
    return (await asOwner(this.url + path)).json();
  }

  /** Until it returns something that is true. */
  async until(condition, what) {
    const end = Date.now() + WAIT_MS;
    while (!(await condition())) {
      demand(Date.now() < end, `not within ${WAIT_MS / 1_000} s: ${what}`);
      await this.page.waitForTimeout(STEP_MS);
    }
  }

  /** Until the mark in the bar has this word. */
  async isMarked(word) {
    await this.page.locator(".live-mark", { hasText: word }).waitFor();
  }

  /** No page can be moved sideways; fails with what is wider than the window. */
  async fits(what) {
    const wide = await this.page.evaluate(() => {
      const { scrollWidth, clientWidth } = document.documentElement;
      if (scrollWidth <= clientWidth) return null;
      const out = [...document.querySelectorAll("body *")].filter(
        (one) =>
          one.getBoundingClientRect().right > clientWidth && one.closest(".scrolls, .react-flow") === null,
      );
      return out.map((one) => `${one.tagName.toLowerCase()}.${one.className}`);
    });
    demand(wide === null, `${what}: wider than the window: ${wide?.slice(0, 8).join(", ")}`);
  }

  /** An error that a case brings about, such as a refusal. */
  forgive(pattern) {
    this.#forgiven.push(pattern);
  }

  /** What axe finds on what is shown now. */
  async isAccessible(what) {
    // The policy of the page lets no script in that is not its own, so axe comes by the protocol.
    await this.page.evaluate(AXE);
    const found = await this.page.evaluate(() =>
      globalThis.axe.run(document, { resultTypes: ["violations"] }),
    );
    const serious = found.violations.filter(({ impact }) => SERIOUS.includes(impact));
    if (serious.length > 0) {
      const lines = serious.flatMap(({ id, help, nodes }) => [
        `${id}: ${help}`,
        ...nodes.map(({ html, failureSummary }) => `    ${html}\n    ${failureSummary}`),
      ]);
      throw new Error(`axe, ${what}:\n${lines.join("\n")}`);
    }
  }

  /** A picture, if somebody wants them: UNISTREAM_PICTURES names the folder. */
  async picture(name) {
    const folder = process.env.UNISTREAM_PICTURES;
    if (folder) await this.page.screenshot({ path: `${folder}/${name}.png`, fullPage: true });
  }

  /** A picture of what the window shows, once nothing is loaded or laid out any more. */
  async documented(path) {
    await this.page.locator(".skeleton").first().waitFor({ state: "detached" });
    await this.page.evaluate(() => document.fonts.ready);
    const { width, height } = this.page.viewportSize();
    const end = await this.page.evaluate(() =>
      Math.ceil(
        Math.max(
          ...[...document.querySelectorAll("main > *")].map((one) => one.getBoundingClientRect().bottom),
        ),
      ),
    );
    const clip = { x: 0, y: 0, width, height: Math.min(height, end + 24) };
    await this.page.screenshot({ path, clip, animations: "disabled" });
  }

  async close() {
    await this.browser.close();
    const errors = this.#errors.filter((error) => !this.#forgiven.some((pattern) => pattern.test(error)));
    if (errors.length > 0) throw new Error(errors.join("\n"));
  }
}

/** Fails with a sentence. */
export function demand(condition, sentence) {
  if (!condition) throw new Error(sentence);
}

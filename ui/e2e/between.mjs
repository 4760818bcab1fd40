/** What stands between a browser and the cluster: far away, holding back, asking for a login, or showing a page of its own. */
import { createServer, request } from "node:http";
import { setTimeout } from "node:timers/promises";

import { asked, isDrawn, runs, said } from "./actions.mjs";
import { demand } from "./browser.mjs";

const HOUR_MS = 3_600_000;
const LOGIN = "<!doctype html><title>Sign in</title><h1>Sign in</h1>";

/** A proxy in front of a cluster, which does what its fields say. */
export class Between {
  delayMs = 0;
  /** Streams do not get through. */
  buffers = false;
  /** What is answered in place of the cluster; null: nothing is. */
  status = null;
  /** The token that it presents for everybody; null: it passes on what it gets. */
  token = null;
  #open = new Set();

  static async before(url) {
    const between = new Between();
    const server = createServer((asked, answer) => void between.#pass(url, asked, answer));
    await new Promise((listens) => server.listen(0, "127.0.0.1", listens));
    return Object.assign(between, { server, url: `http://127.0.0.1:${server.address().port}` });
  }

  /** From now on, also for what is open. */
  answers(status) {
    this.status = status;
    for (const answer of this.#open) answer.destroy();
  }

  close() {
    this.server.closeAllConnections();
    this.server.close();
  }

  async #pass(url, asked, answer) {
    await setTimeout(this.delayMs);
    if (this.status !== null) {
      asked.resume();
      answer.writeHead(this.status, { "content-type": "text/html" }).end(LOGIN);
      return;
    }
    this.#open.add(answer);
    answer.on("close", () => this.#open.delete(answer));
    const presented = this.token === null ? {} : { authorization: `Bearer ${this.token}` };
    const headers = { ...asked.headers, ...presented };
    const onward = request(url + asked.url, { method: asked.method, headers }, (from) => {
      if (this.buffers && from.headers["content-type"]?.startsWith("text/event-stream")) {
        answer.on("close", () => from.destroy());
        from.resume();
        return;
      }
      answer.writeHead(from.statusCode, from.headers);
      from.pipe(answer);
    });
    onward.on("error", () => answer.destroy());
    answer.on("close", () => onward.destroy());
    asked.pipe(onward);
  }
}

export async function behind(ui, does) {
  const between = await Between.before(ui.url);
  const tab = await ui.tab(between.url);
  try {
    await does(between, tab);
    await tab.page.close();
  } finally {
    between.close();
  }
}

/** Each answer comes a second later, and the clock of the browser is five hours behind. */
export async function farAway(ui, { job }) {
  await behind(ui, async (between, tab) => {
    between.delayMs = 1_000;
    await tab.page.addInitScript((behindMs) => {
      const now = Date.now;
      Date.now = () => now() - behindMs;
    }, 5 * HOUR_MS);
    await runs(tab, job);
    await isDrawn(tab, 3);
    await tab.isMarked("live");
    const head = await tab.page.locator("main p.quiet").first().innerText();
    demand(/runs for ([\d.]+ s|\d+ min)/.test(head), `ages go by the clock of the cluster: ${head}`);
    const dialog = await asked(tab, "Savepoint", "Take a savepoint");
    await dialog.getByRole("button", { name: "Take it" }).click();
    await said(tab, "It is complete, and the job goes on.");
    await tab.isAccessible("a page that is far away");
    demand((await tab.page.getByRole("alert").count()) === 0, "slow is not old");
  });
}

/** A proxy that keeps what has no end until it ends. */
export async function heldBack(ui, { job }) {
  await behind(ui, async (between, tab) => {
    between.buffers = true;
    await runs(tab, job);
    await tab.isMarked("each second");
    const rows = tab.page.locator("tbody tr td.number").first();
    const before = await rows.innerText();
    await tab.page.waitForFunction(
      (text) => document.querySelector("tbody tr td.number")?.innerText !== text,
      before,
    );
    demand((await tab.page.getByRole("alert").count()) === 0, "nothing is old");
    between.buffers = false;
    await tab.isMarked("live");
  });
}

/** Without a token, with one that is refused, with nobody behind, and with a page in place of an answer. */
export async function turnedAway(ui, { job }) {
  ui.forgive(/\b(401|403|502)\b|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE_CHUNKED|ERR_CONNECTION/);
  await behind(ui, async (between, tab) => {
    await runs(tab, job);
    for (const [status, sentence] of [
      [401, "asks who you are (401)"],
      [403, "does not let you pass (403)"],
      [502, "does not reach it (502)"],
      [200, "not the JobManager, perhaps the page of a login"],
    ]) {
      await tab.isMarked("live");
      between.answers(status);
      await tab.isMarked("old");
      const notice = tab.page.getByRole("alert").filter({ hasText: "Old since" });
      await notice.filter({ hasText: sentence }).waitFor();
      await tab.isAccessible(`an answer ${status}`);
      await tab.picture(`turned-away-${status}`);
      demand((await tab.page.getByRole("heading", { level: 1 }).count()) === 1, "what was known stays");
      between.answers(null);
      await tab.isMarked("live");
      demand((await notice.count()) === 0, "it goes on");
    }
    await asksAgain(between, tab);
  });
}

/** What was asked for without a token is done when there is one. */
async function asksAgain(between, tab) {
  const dialog = await asked(tab, "Savepoint", "Take a savepoint");
  between.answers(401);
  await dialog.getByRole("button", { name: "Take it" }).click();
  await said(tab, "asks who you are (401)");
  between.answers(null);
  await said(tab, "It is complete, and the job goes on.");
}

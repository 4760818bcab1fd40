/** What becomes of a job while its pages are open: it ends, it is upgraded, it is removed; and numbers that are none. */
import { runs } from "./actions.mjs";
import { asOwner, demand } from "./browser.mjs";

const TABS = [
  "",
  ...[
    "timeline",
    "checkpoints",
    "state",
    "commits",
    "dead-letters",
    "exceptions",
    "log",
    "plan",
    "configuration",
  ].map((tab) => `/${tab}`),
];

/** A browser has six connections to one address, and each page that is shown holds one. */
const OPEN = ["", "/checkpoints", "/state", "/log"];

/** Pages of some tabs of a job, which stay open. */
async function someOpen(ui, job) {
  const pages = [];
  for (const tab of OPEN) {
    const page = await ui.tab();
    await page.goto(`/jobs/${job}${tab}`);
    pages.push([tab, page]);
  }
  return pages;
}

/** The other tabs, by the links of a page that was open before. */
async function visitOthers([[, ui]], job, look) {
  await ui.page.bringToFront();
  const links = ui.page.getByRole("navigation", { name: "Of this job" }).getByRole("link");
  for (const title of await links.allInnerTexts()) {
    await links.filter({ hasText: title }).first().click();
    await ui.page.locator(".skeleton").first().waitFor({ state: "detached" });
    await look(title, ui);
  }
  await ui.goto(`/jobs/${job}`);
}

/** Each of them says what the job is, keeps what was known, and is nothing that waits. */
async function says(pages, badge, look = async () => undefined) {
  for (const [tab, ui] of pages) {
    await ui.page.bringToFront(); // one that nobody looks at asks nothing
    await ui.page.locator(".title .badge", { hasText: badge }).waitFor();
    await ui.page.locator(".skeleton").first().waitFor({ state: "detached" });
    demand((await ui.page.getByRole("heading", { level: 1 }).count()) === 1, `${tab}: its name is there`);
    await look(tab, ui);
  }
}

/** But that no snapshot is left of it, which its state would be read from. */
async function hasNoAlert(tab, { page }) {
  const alerts = await page.getByRole("alert").allInnerTexts();
  const others = alerts.filter((text) => !text.includes("checkpoint or savepoint that is still kept"));
  demand(others.length === 0, `${tab}: an end is no failure: ${others.join(" ")}`);
}

/** It is cancelled by somebody else. */
export async function ends(ui, { job }) {
  ui.forgive(/\b404\b/); // of its state
  await runs(ui, job);
  const pages = await someOpen(ui, job);
  await asOwner(`${ui.url}/jobs/${job}`, { method: "PATCH" });
  await says(pages, "CANCELED", async (tab, one) => {
    demand((await one.page.getByRole("alert").count()) === 0, `${tab}: an end is no failure`);
    await one.page
      .getByText(/ran for/)
      .first()
      .waitFor();
    if (tab === "" || tab === "/state") await one.isAccessible(`an ended job${tab}`);
  });
  await visitOthers(pages, job, async (title, one) => {
    await hasNoAlert(title, one);
    await one.page.locator(".title .badge", { hasText: "CANCELED" }).waitFor();
  });
}

/** After "ready" it is upgraded by a command; `page` of the old one leads to the new one. */
export async function isUpgraded(ui, { job }) {
  await runs(ui, job);
  const pages = await someOpen(ui, job);
  console.log("ready");
  await says(pages, "FINISHED", async (tab, one) => {
    await one.page.getByText("A job of the same name was started since then").waitFor();
    if (tab === "") await one.isAccessible("a job that was upgraded");
  });
  const [[, first]] = pages;
  await first.page.bringToFront();
  await first.page.getByRole("status").getByRole("link").first().click();
  await first.page.waitForURL((url) => !url.pathname.includes(job));
  await first.page.locator(".title .badge", { hasText: "RUNNING" }).waitFor();
}

/** No cluster knows it any more: each tab says so, and where others are. */
export async function isGone(ui, { job }) {
  ui.forgive(/\b404\b/);
  await ui.signIn();
  for (const tab of TABS) {
    await ui.page.goto(`${ui.url}/ui/jobs/${job}${tab}`);
    await ui.page.getByText("It may have been removed from the history.").first().waitFor();
    const main = ui.page.getByRole("main");
    await main.getByRole("link", { name: "history" }).waitFor();
    await main.getByRole("link", { name: "overview" }).waitFor();
    await ui.fits(tab);
  }
  await ui.isAccessible("a job that was removed");
  await ui.page.getByRole("main").getByRole("link", { name: "history" }).click();
  await ui.page.getByRole("heading", { level: 1, name: "History" }).waitFor();
}

/** Counters that are not finite, or missing: each tab is drawn, and no number is NaN. */
export async function noNumbers(ui, { job }) {
  await runs(ui, job);
  ui.forgive(/\b503\b/);
  const { page } = ui;
  await page.route("**/unistream/events*", (route) =>
    route.fulfill({ status: 503, contentType: "application/json", body: '{"errors": ["no stream"]}' }),
  );
  const numbers =
    /"(records_in|records_out|busy_per_s|backpressured_per_s|rows_read|rows_committed|behind|state_bytes|duration_ms)":-?[\d.]+/g;
  let turn = 0;
  await page.route(/\/unistream\/(jobs|overview)/, async (route) => {
    const answer = await route.fetch();
    const text = await answer.text();
    const odd = ["null", "1e999", "-1e999"]; // JSON has no NaN; what is too large is read as infinite
    const body = text.replaceAll(numbers, (_, name) => `"${name}":${odd[(turn += 1) % odd.length]}`);
    await route.fulfill({ response: answer, body });
  });
  for (const path of ["/", ...TABS.map((tab) => `/jobs/${job}${tab}`)]) {
    await ui.goto(path);
    await page.locator(".skeleton").first().waitFor({ state: "detached" });
    await page.waitForTimeout(1_500); // a rate needs two answers
    const shown = await page.getByRole("main").innerText();
    demand(
      !/NaN|undefined|Infinity/.test(shown),
      `${path}: ${/.*(NaN|undefined|Infinity).*/.exec(shown)?.[0]}`,
    );
    await ui.fits(path);
  }
  await page.unrouteAll({ behavior: "ignoreErrors" });
}

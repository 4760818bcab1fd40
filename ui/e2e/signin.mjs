/** How somebody signs in and out, what a scope leaves out, and where tokens are made. */
import { runs } from "./actions.mjs";
import { asOwner, demand, linkTo } from "./browser.mjs";
import { behind } from "./between.mjs";

const LOOK_MS = 3_000; // in which each query of a page would have been asked again

/** What a page has kept; `session`: the token of the tab. */
async function kept(page) {
  const found = await page.evaluate(() => ({
    session: Object.entries({ ...globalThis.sessionStorage }),
    local: JSON.stringify({ ...globalThis.localStorage }),
    cookies: document.cookie,
    address: globalThis.location.href,
    state: JSON.stringify(globalThis.history.state),
  }));
  const [[, text] = []] = found.session.filter(([name]) => name === "unistream-session");
  return { ...found, text: text === undefined ? null : JSON.parse(text).text };
}

/** The id of a token, by which it is listed and revoked. */
function idOf(text) {
  return text.split("_")[1];
}

async function statusOf(ui, text) {
  const headers = { Authorization: `Bearer ${text}` };
  return (await fetch(`${ui.url}/unistream/identity`, { headers })).status;
}

async function isOut(ui, why) {
  await ui.page.getByRole("heading", { level: 1, name: "Sign in" }).waitFor();
  if (why) await ui.page.getByText(why).first().waitFor();
}

async function typed(ui, text) {
  await ui.page.getByLabel("Token", { exact: true }).fill(text);
  await ui.page.getByRole("button", { name: "Sign in" }).click();
}

async function account(ui, name, scope) {
  const summary = ui.page.locator(".account summary");
  await summary.waitFor();
  const said = await summary.innerText();
  demand(said.includes(name) && said.includes(scope), `who is signed in: ${said}`);
  await summary.click();
  const menu = ui.page.locator(".account-menu");
  const { x, width } = await menu.boundingBox();
  demand(x >= 0 && x + width <= ui.page.viewportSize().width, `all of it is seen: ${x} to ${x + width}`);
  return menu;
}

/** A link lets somebody in; neither its code nor the token is where it could be read later. */
export async function byLink(ui, { job }) {
  const asked = [];
  ui.page.on("request", (request) => asked.push(request));
  const link = await linkTo(ui.url);
  const [, code] = link.split("#login=");
  await ui.page.goto(link);
  await ui.isInside();
  await runs(ui, job);
  await ui.isMarked("live");
  const { text, local, cookies, address, state, session } = await kept(ui.page);
  demand(text !== null && (await statusOf(ui, text)) === 200, "the tab has a token that is taken");
  demand(session.length === 1, `nothing else is kept for the tab: ${session.map(([name]) => name)}`);
  const secrets = [code, text, text.split("_")[2]];
  const places = [local, cookies, address, state, ui.page.url()];
  const headers = await Promise.all(asked.map((request) => request.allHeaders()));
  places.push(...asked.map((request) => request.url()), ...headers.map(({ referer }) => referer ?? ""));
  demand(asked.length > 10, `it has asked: ${asked.length}`);
  for (const secret of secrets) {
    demand(
      !places.some((one) => one.includes(secret)),
      "no secret is in an address, a referrer or what outlives the tab",
    );
  }
  const api = headers.filter((_, at) => new URL(asked[at].url()).pathname.startsWith("/unistream/"));
  demand(
    api.filter(({ authorization }) => authorization !== `Bearer ${text}`).length === 1,
    "each request but the one with the code presents the token",
  );
  await ui.page.goBack();
  demand(!ui.page.url().includes(code), "nor is it in the address of before");
  await ui.goto(`/jobs/${job}`);
  await out(ui, text);
}

async function out(ui, text) {
  const menu = await account(ui, "browser of the owner", "admin");
  await menu.getByText("makes and revokes tokens").waitFor();
  await ui.isAccessible("who is signed in");
  await ui.picture("account");
  await ui.page.keyboard.press("Escape");
  await menu.waitFor({ state: "hidden" });
  await ui.page.keyboard.press("Enter");
  ui.forgive(/\b401\b/);
  await menu.getByRole("button", { name: "Sign out" }).click();
  await isOut(ui, "You have signed out.");
  await ui.until(async () => (await statusOf(ui, text)) === 401, "its token is taken no more");
  demand((await kept(ui.page)).text === null, "and is kept no more");
  await ui.isAccessible("the page of somebody who has signed out");
}

/** The page that was wanted is there once a token was pasted. */
export async function byToken(ui, { job, token }) {
  ui.forgive(/\b401\b/);
  await ui.page.goto(`${ui.url}/ui/jobs/${job}/checkpoints?id=1`);
  await isOut(ui, "unistream ui");
  await ui.page.getByText("unistream token create NAME --scope read").waitFor();
  await ui.isAccessible("the page on which one signs in");
  await ui.fits("the page on which one signs in");
  await ui.picture("sign-in");
  const field = ui.page.getByLabel("Token", { exact: true });
  demand(await field.evaluate((one) => one === document.activeElement), "the field has the focus");
  demand((await field.getAttribute("type")) === "password", "nobody reads it over a shoulder");
  demand(await ui.page.getByRole("button", { name: "Sign in" }).isDisabled(), "there is nothing to send yet");
  await typed(ui, "unistream_of_somebody");
  await ui.page.getByRole("alert").filter({ hasText: "copied completely" }).waitFor();
  await ui.isAccessible("a token that is refused");
  await ui.picture("sign-in-refused");
  await field.fill(token);
  await ui.page.keyboard.press("Enter");
  await ui.isInside();
  await ui.page.locator(".title .badge", { hasText: "RUNNING" }).waitFor();
  await ui.isMarked("live");
  const { pathname, searchParams } = new URL(ui.page.url());
  demand(pathname === `/ui/jobs/${job}/checkpoints`, `it is the page that was wanted: ${pathname}`);
  demand(searchParams.get("id") === "1", "with what its address says");
  await ui.page.reload();
  await ui.page.locator(".title .badge", { hasText: "RUNNING" }).waitFor();
  const menu = await account(ui, "reader", "read");
  await menu.getByRole("button", { name: "Sign out" }).click();
  await isOut(ui, "You have signed out.");
  demand((await statusOf(ui, token)) === 200, "a token that was pasted may be used elsewhere: it goes on");
}

/** A code that was used, one that nobody answers to, and one that is opened in the tab that is there. */
export async function refusedCode(ui) {
  ui.forgive(/\b401\b|ERR_FAILED/);
  const { page } = ui;
  const used = await linkTo(ui.url);
  await page.goto(used);
  await ui.isInside();
  const other = await ui.tab();
  await other.page.goto(used);
  await isOut(other, "was used, or has expired");
  demand(!other.page.url().includes("login"), "its code stands in the address no more");
  await other.isAccessible("a code that was used");
  await other.picture("sign-in-used");
  await other.page.getByRole("button", { name: "Go on as before" }).click();
  await other.isInside();
  await other.page.close();

  await ui.page.evaluate(() => globalThis.sessionStorage.clear());
  await page.goto(used.replace("/ui/#", "/ui/workers#"));
  await isOut(ui, "was used, or has expired");
  demand((await page.getByRole("button", { name: "Go on as before" }).count()) === 0, "nobody was signed in");
  await page.route("**/unistream/login", (route) => route.abort());
  const link = (await linkTo(ui.url)).replace("/ui/#", "/ui/workers#");
  await page.evaluate((address) => globalThis.location.assign(address), link); // the fragment alone is another one
  await isOut(ui, "does not answer");
  await ui.isAccessible("a link that nobody answers to");
  await page.unroute("**/unistream/login");
  await page.getByRole("button", { name: "Try the link again" }).click();
  await ui.isInside();
  await page.getByRole("heading", { level: 1, name: "Workers" }).waitFor();
  demand(!page.url().includes("login"), "nor does the code of that");
}

/** A new tab needs no second sign-in; who leaves one leaves both, and comes back in both. */
export async function secondTab(ui, { job, token }) {
  ui.forgive(/\b401\b/);
  await runs(ui, job);
  const other = await ui.tab();
  await other.page.goto(`${ui.url}/ui/workers`);
  await other.isInside();
  await other.page.getByRole("heading", { level: 1, name: "Workers" }).waitFor();
  await other.isMarked("live");
  demand((await kept(other.page)).text === (await kept(ui.page)).text, "both have the same token");
  const menu = await account(other, "browser of the owner", "admin");
  await menu.getByRole("button", { name: "Sign out" }).click();
  await isOut(other, "You have signed out.");
  await isOut(ui, "Another tab of this browser has signed out.");
  demand((await kept(ui.page)).text === null, "no tab keeps the token");
  const third = await ui.tab();
  await third.page.goto(`${ui.url}/ui/`);
  await isOut(third, "unistream ui");
  await typed(third, token);
  for (const one of [third, other, ui]) await one.isInside();
  await other.page.getByRole("heading", { level: 1, name: "Workers" }).waitFor();
  await ui.page.locator(".title .badge", { hasText: "RUNNING" }).waitFor();
}

/** A page whose token is revoked asks nothing more, says why, and goes on where it was. */
export async function revoked(ui, { job }) {
  ui.forgive(/\b401\b/);
  await runs(ui, job);
  await ui.isMarked("live");
  const asked = [];
  ui.page.on("request", (request) => asked.push(request.url()));
  const { text } = await kept(ui.page);
  const answer = await asOwner(`${ui.url}/unistream/tokens/${idOf(text)}`, { method: "DELETE" });
  demand(answer.ok, `it is revoked: ${answer.status}`);
  await isOut(ui, "was revoked");
  demand((await ui.page.getByText(job.slice(0, 8)).count()) === 0, "nothing of the job is shown any more");
  await ui.isAccessible("a page whose token was revoked");
  await ui.picture("sign-in-revoked");
  const before = asked.length;
  await ui.page.waitForTimeout(LOOK_MS);
  demand(asked.length === before, `nothing is asked for: ${asked.slice(before)}`);
  await typed(ui, await linkTo(ui.url)); // a whole link is taken, too
  await ui.isInside();
  await ui.page.locator(".title .badge", { hasText: "RUNNING" }).waitFor();
  await ui.isMarked("live");
  const rows = ui.page.locator("tbody tr td.number").first();
  const shown = await rows.innerText();
  await ui.until(async () => (await rows.innerText()) !== shown, "the rows go on");
}

/** Who may only look is offered nothing else, and gets nothing else. */
export async function reader(ui, { job, token }) {
  ui.forgive(/\b401\b|\b403\b/);
  await ui.page.goto(`${ui.url}/ui/jobs/${job}`);
  await typed(ui, token);
  await ui.isInside();
  await ui.page.getByText(/with the scope read: what changes something here needs operate/).waitFor();
  demand((await ui.page.getByRole("group", { name: "Actions" }).count()) === 0, "no action is offered");
  const pages = ui.page.getByRole("navigation", { name: "Pages" });
  demand((await pages.getByRole("link", { name: "Tokens" }).count()) === 0, "nor are tokens");
  await ui.isAccessible("the page of a job for a reader");
  await ui.picture("reader");
  await ui.goto("/tokens");
  await ui.page.getByText("by who has the scope admin").waitFor();
  await ui.isAccessible("the page of tokens for a reader");
  const [status, said] = await ui.page.evaluate(
    async ([id, text]) => {
      const headers = { "X-Unistream-Page": "1", Authorization: `Bearer ${text}` };
      const answer = await fetch(`/jobs/${id}`, { method: "PATCH", headers });
      return [answer.status, await answer.text()];
    },
    [job, token],
  );
  demand(
    status === 403 && said.includes("this needs 'operate'"),
    `what is asked all the same: ${status} ${said}`,
  );
  await runs(ui, job);
}

/** Made, copied, used, found by the address, and revoked. */
export async function tokens(ui) {
  await ui.goto("/");
  await ui.page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Tokens" }).click();
  await ui.page.getByRole("heading", { level: 1, name: "Tokens" }).waitFor();
  await ui.page.getByText("of this page").waitFor();
  await ui.page.getByRole("button", { name: "New token" }).click();
  const dialog = ui.page.getByRole("dialog");
  demand(await dialog.getByRole("button", { name: "Make it" }).isDisabled(), "it needs a name");
  await dialog.getByLabel("Name").fill("nightly <b>run</b>");
  await dialog.getByRole("radio", { name: /^operate/ }).check();
  await dialog.getByLabel("It is taken for").selectOption("7 days");
  await ui.isAccessible("the dialog of a new token");
  await ui.picture("token-new");
  await dialog.getByRole("button", { name: "Make it" }).click();
  await dialog.getByText("its text is shown this once").waitFor();
  await ui.isAccessible("a new token");
  await ui.fits("a new token");
  await ui.picture("token-made");
  await dialog.getByRole("button", { name: /^Copy/ }).click();
  const text = await ui.page.evaluate(() => navigator.clipboard.readText());
  const headers = { Authorization: `Bearer ${text}` };
  const identity = await (await fetch(`${ui.url}/unistream/identity`, { headers })).json();
  demand(identity.name === "nightly <b>run</b>" && identity.scope === "operate", JSON.stringify(identity));
  const days = (identity.expiresMs - Date.now()) / 86_400_000;
  demand(days > 6.9 && days <= 7, `it is taken for 7 days, not ${days}`);
  await dialog.getByRole("button", { name: "Done" }).click();
  await dialog.waitFor({ state: "detached" });
  const row = ui.page.getByRole("row").filter({ hasText: "nightly" });
  await row.getByText("taken").waitFor();
  demand(!(await ui.page.content()).includes(text.split("_")[2]), "its text is shown once");
  await ui.page.getByLabel("With", { exact: true }).fill("night");
  await ui.page.waitForURL((url) => url.searchParams.get("q") === "night");
  await ui.isAccessible("tokens");
  await ui.fits("tokens");
  await ui.picture("tokens");
  await row.getByRole("button", { name: "Revoke" }).click();
  await dialog.getByText("is refused from now on").waitFor();
  await ui.isAccessible("the dialog that revokes a token");
  await dialog.getByRole("button", { name: "Leave it" }).click();
  await dialog.waitFor({ state: "detached" });
  demand((await statusOf(ui, text)) === 200, "it was asked once, and left");
  await row.getByRole("button", { name: "Revoke" }).click();
  await dialog.getByRole("button", { name: "Revoke it" }).click();
  await ui.page.getByText("No token that is taken has this in its name.").waitFor();
  demand((await statusOf(ui, text)) === 401, "it is taken no more");
  await ui.page.getByLabel("also those that are taken no more").check();
  await row.getByText("revoked").waitFor();
  await ui.page.reload();
  await row.getByText("revoked").waitFor();
}

/** A cluster that answers everybody asks nobody. */
export async function anybody(ui, { job }) {
  await ui.page.goto(`${ui.url}/ui/jobs/${job}`);
  await ui.isInside();
  await ui.page.getByRole("group", { name: "Actions" }).waitFor();
  await ui.isMarked("live");
  demand((await ui.page.locator(".account").count()) === 0, "nobody is signed in");
  demand((await kept(ui.page)).text === null, "nothing is kept");
  await ui.goto("/tokens");
  await ui.page.getByText("security.rest.authentication: none").waitFor();
  await ui.isAccessible("tokens where nobody needs one");
}

/** A proxy that has a token lets its users in, and they are who it says. */
export async function proxy(ui, { job, token }) {
  await behind(ui, async (between, tab) => {
    between.token = token;
    await tab.page.goto(`${between.url}/ui/jobs/${job}`);
    await tab.isInside();
    await tab.isMarked("live");
    const menu = await account(tab, "reader", "read");
    await menu.getByText("sign out there").waitFor();
    demand((await kept(tab.page)).text === null, "the page has no token of its own");
  });
}

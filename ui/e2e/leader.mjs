/** Pages that stay open while another of several masters becomes the leader. */
import { asked, runs, said } from "./actions.mjs";
import { demand } from "./browser.mjs";

/**
 * One tab at the leader, which is killed after "ready"; one at the standby, which leads then, and is asked for a savepoint
 * meanwhile. After "followed" a master is started at the address of the first one, where a third tab has stayed.
 */
export async function leaderDies(ui, { job, standby }) {
  await runs(ui, job);
  await ui.isMarked("live");
  const stays = await ui.tab();
  await stays.goto(`/jobs/${job}/checkpoints?id=1`);
  await stays.isMarked("live");
  const atStandby = await ui.tab(standby);
  await runs(atStandby, job);
  await atStandby.isMarked("live");
  await atStandby.isAccessible("the page of a job at a standby");
  await namesAll(atStandby);
  await runs(atStandby, job);
  const dialog = await asked(atStandby, "Savepoint", "Take a savepoint");
  // 401: a tab that comes to another address has no token of its own there until another tab gives it
  ui.forgive(/ERR_CONNECTION|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE_CHUNKED|\b401\b|\b503\b/);
  console.log("ready");

  await dialog.getByRole("button", { name: "Take it" }).click();
  await ui.isMarked("old");
  const notice = ui.page.getByRole("alert");
  demand((await notice.innerText()).includes("Old since"), "the page says since when it is old");
  await ui.isAccessible("a page whose master has died");
  await ui.picture("leader-died");
  await said(atStandby, "It is complete, and the job goes on.");
  await atStandby.isMarked("live");
  await rowsFlow(atStandby, job);

  await notice.getByRole("link", { name: new URL(standby).host }).click();
  await ui.page.waitForURL(`${standby}/ui/jobs/${job}`);
  await ui.isMarked("live");
  await ui.page.locator(".title .badge", { hasText: "RUNNING" }).waitFor();
  demand((await stays.page.getByRole("alert").count()) === 1, "the other tab is old");
  console.log("followed");

  await stays.isMarked("live");
  demand((await stays.page.getByRole("alert").count()) === 0, "it is old no more");
  demand(new URL(stays.page.url()).origin === ui.url, "it is where it was");
  await rowsFlow(stays, job);
  await stays.isAccessible("a page that has gone on");
  console.log("done");
}

/** The page of the cluster says who stands by, and where. */
async function namesAll(ui) {
  await ui.goto("/cluster");
  await ui.page.getByRole("link", { name: new URL(ui.url).host }).waitFor();
}

/** What the page shows goes on. */
async function rowsFlow(ui, job) {
  await ui.goto(`/jobs/${job}/commits`);
  const newest = ui.page.locator("tbody tr").first();
  await newest.waitFor();
  const before = await newest.innerText();
  await ui.page.waitForFunction((text) => document.querySelector("tbody tr")?.innerText !== text, before);
}

/** A job that reads Kafka, as somebody follows it through failures and changes. */
import { drain, isDrawn, rescale, runs, savepoint, startAgain } from "./actions.mjs";
import { demand } from "./browser.mjs";

async function tab(ui, name) {
  await ui.page.getByRole("navigation", { name: "Of this job" }).getByRole("link", { name }).click();
}

/** After "ready" a worker is killed. At the end a job runs that goes on from the savepoint of the drain. */
export async function throughAll(ui, { job }) {
  await runs(ui, job);
  await isDrawn(ui, 2);
  await rowsMove(ui);
  console.log("ready");
  await workerLost(ui, job);
  await savepoint(ui);
  await rescale(ui, job, { slider: 0 });
  const points = await drain(ui);
  const next = await startAgain(ui, points);
  await runs(ui, next);
  await isDrawn(ui, 2);
  await rowsMove(ui);
  console.log(`next ${next}`);
}

async function rowsMove(ui) {
  const rows = ui.page.locator("tbody tr").first().locator("td.number").first();
  await rows.waitFor();
  const before = await rows.innerText();
  await ui.page.waitForFunction(
    (text) => document.querySelector("tbody tr td.number")?.innerText !== text,
    before,
  );
}

/** The page says what was lost, that the job has restarted because of it, and that all of its tasks run again. */
async function workerLost(ui, job) {
  await tab(ui, /^Exceptions \(1\)/);
  const cause = ui.page.locator("ol.stack > li").first();
  await cause.waitFor();
  const text = await cause.innerText();
  demand(text.includes("was killed by SIGKILL"), `the cause is named: ${text}`);
  await ui.isAccessible("the exceptions of a job that goes on");
  await ui.picture("worker-lost");
  await ui.page.getByText("1 restart.").waitFor();
  await tab(ui, "Timeline");
  const drawn = (lane, what) =>
    ui.page
      .locator(".lane", { has: ui.page.locator(".lane-name", { hasText: lane }) })
      .locator("title", { hasText: what })
      .first()
      .waitFor({ state: "attached" });
  await drawn("Job", "RESTARTING");
  await drawn("Failures", "was killed by SIGKILL");
  await ui.isAccessible("the timeline of a job that has restarted");
  await ui.picture("timeline-restart");
  await runs(ui, job);
}

/** A job whose function fails: the cause is on each of its pages, with the line of the user's code. */
export async function failed(ui, { job, message }) {
  await ui.goto(`/jobs/${job}`);
  await ui.page.locator(".title .badge", { hasText: "FAILED" }).waitFor();
  await ui.page.locator("main .notice").getByText(message).waitFor();
  await tab(ui, /^Exceptions/);
  const cause = ui.page.locator("ol.stack > li").first();
  demand(
    (await cause.innerText()).includes(message),
    `the first one is the cause: ${await cause.innerText()}`,
  );
  await cause.getByText("Whole stack", { exact: true }).first().click();
  await cause
    .getByText(/in refuse/)
    .first()
    .waitFor();
  await ui.isAccessible("the exceptions of a job that has failed");
  await ui.picture("failed");
  await ui.fits("the exceptions of a job that has failed");
}

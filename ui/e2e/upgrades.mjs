import { asked, hideAll, runs, said } from "./actions.mjs";
import { demand } from "./browser.mjs";

/** Other options and another parallelism over a reload; then some with which the job does not come up. */
export async function upgraded(ui, { job }) {
  await runs(ui, job);
  let dialog = await asked(ui, "Upgrade", "Upgrade: other options, another parallelism");
  const confirm = dialog.getByRole("button", { name: "Upgrade the job" });
  demand(await confirm.isDisabled(), "nothing has changed yet");
  await dialog.getByRole("textbox").fill("no option");
  await dialog.getByText("Not an option and its value: no option").waitFor();
  demand(await confirm.isDisabled(), "a line is wrong");
  await dialog.getByRole("textbox").fill("execution.checkpointing.interval: 7 s");
  await dialog.getByRole("slider").nth(1).focus(); // the windows
  await ui.page.keyboard.press("ArrowLeft");
  await ui.isAccessible("the dialog of an upgrade");
  await ui.picture("dialog-upgrade");
  await confirm.click();
  await ui.page.getByRole("list", { name: "Steps" }).waitFor();
  await ui.page.reload(); // it goes on where it was
  await said(ui, "A new job goes on with the changes, and has a checkpoint.");
  await ui.isAccessible("the page of a job that was upgraded");
  await ui.picture("operation-upgrade");
  const next = await toTheNewJob(ui, job);
  const config = await ui.json(`/jobs/${next}/checkpoints/config`);
  demand(config.interval === 7000, `its interval is ${config.interval} ms`);
  await runs(ui, next);

  dialog = await asked(ui, "Upgrade", "Upgrade: other options, another parallelism");
  await dialog.getByRole("textbox").fill("restart-strategy.type: none\nslot.request.timeout: 1 ms");
  await dialog.getByRole("spinbutton").nth(1).fill("64");
  await dialog.getByRole("button", { name: "Upgrade the job" }).click();
  await said(ui, "The job as it was goes on from the same savepoint, as a new job.");
  await ui.picture("operation-went-back");
  await runs(ui, await toTheNewJob(ui, next));
  await hideAll(ui);
}

/** The state of a job from a program: its plan in the dialog, the rows of its windows before and after. */
export async function withState(ui, { job }) {
  const before = await stateRows(ui, job);
  await runs(ui, job);
  const dialog = await asked(ui, "Upgrade", "Upgrade: other options, another parallelism");
  const said_ = await dialog.getByRole("definition").allInnerTexts();
  demand(
    said_.some((text) => text.includes("the new job begins with it")),
    `what happens to the state: ${said_.join(" | ")}`,
  );
  await dialog.getByRole("slider").nth(1).focus(); // the windows
  await ui.page.keyboard.press("ArrowLeft");
  await dialog.getByRole("button", { name: "Upgrade the job" }).click();
  await said(ui, "A new job goes on with the changes, and has a checkpoint.");
  const steps = await ui.page.getByRole("list", { name: "Steps" }).getByRole("listitem").allInnerTexts();
  demand(steps.length >= 4 && steps.every((text) => text.includes("done")), `each step is done: ${steps}`);
  const next = await toTheNewJob(ui, job);
  const after = await stateRows(ui, next);
  demand(after >= before && before > 0, `keys in windows: ${before} before, ${after} after`);
}

/** Rows of the state of windows in the newest snapshot, as the page shows them. */
async function stateRows(ui, job) {
  await ui.goto(`/jobs/${job}/state`);
  const row = ui.page.getByRole("row").filter({ hasText: "windows" }).first();
  await row.waitFor();
  return Number((await row.locator("td.number").first().innerText()).replace(/\D/g, ""));
}

/** Its id. */
async function toTheNewJob(ui, job) {
  await ui.page.getByRole("link", { name: "To the new job" }).click();
  await ui.page.waitForURL((url) => !url.pathname.includes(job));
  await ui.page.locator(".title .badge", { hasText: "RUNNING" }).waitFor();
  return new URL(ui.page.url()).pathname.split("/")[3];
}

/** The JobManager ends after "ready", another one takes its place after "asked": that one takes all steps. */
export async function anotherLeader(ui, { job }) {
  await runs(ui, job);
  const dialog = await asked(ui, "Upgrade", "Upgrade: other options, another parallelism");
  await dialog.getByRole("textbox").fill("execution.checkpointing.interval: 7 s");
  ui.forgive(/ERR_CONNECTION|ERR_EMPTY_RESPONSE|\b503\b/);
  console.log("ready");
  await ui.page.getByText("The JobManager does not answer.").first().waitFor();
  await dialog.getByRole("button", { name: "Upgrade the job" }).click();
  await said(ui, "It is asked again.");
  console.log("asked");
  await said(ui, "A new job goes on with the changes, and has a checkpoint.");
  await toTheNewJob(ui, job);
  console.log("done");
}

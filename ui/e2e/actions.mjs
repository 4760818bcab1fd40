/** Actions of a job, as somebody does them. */
import { asOwner, demand } from "./browser.mjs";

/** Opens the dialog of a button, and looks at it. */
export async function asked(ui, button, title) {
  await ui.page
    .getByRole("group", { name: "Actions" })
    .getByRole("button", { name: button, exact: true })
    .click();
  const dialog = ui.page.getByRole("dialog", { name: title });
  await dialog.waitFor();
  await ui.isAccessible(`the dialog "${title}"`);
  await ui.picture(`dialog-${button.toLowerCase().replaceAll(" ", "-")}`);
  return dialog;
}

/** What is said of an operation, as soon as it says this. */
export async function said(ui, sentence) {
  const found = ui.page.locator(".operation", { hasText: sentence }).first();
  await found.waitFor();
  return found;
}

async function copied(ui, operation, what) {
  const place = operation.locator(".places > div", { hasText: what });
  await place.getByRole("button", { name: /^Copy/ }).click();
  return ui.page.evaluate(() => navigator.clipboard.readText());
}

/** Shows the page of a job, all of whose tasks run. */
export async function runs(ui, job) {
  await ui.goto(`/jobs/${job}`);
  await ui.page.locator(".title .badge", { hasText: "RUNNING" }).waitFor();
  await ui.until(async () => {
    const info = await ui.json(`/unistream/jobs/${job}`);
    return info.state === "RUNNING" && info.subtasks.every(({ state }) => state === "RUNNING");
  }, "all its tasks run");
}

export async function savepoint(ui) {
  const dialog = await asked(ui, "Savepoint", "Take a savepoint");
  await dialog.getByRole("button", { name: "Take it" }).click();
  const operation = await said(ui, "It is complete, and the job goes on.");
  const path = await copied(ui, operation, "A job can start from");
  demand(path.includes("savepoint"), `${path} is the path of a savepoint`);
  return path;
}

export async function cancel(ui) {
  const dialog = await asked(ui, "Cancel", "Cancel");
  await dialog.getByRole("button", { name: "Cancel the job" }).click();
  await said(ui, "The job is cancelled.");
  await ui.page.locator(".title .badge", { hasText: "CANCELED" }).waitFor();
}

/** The shortest one: a savepoint, of which the page still knows after it was loaded again, and a cancellation. */
export async function saveAndCancel(ui, { job }) {
  await ui.goto("/");
  await ui.page.getByRole("link", { name: "flights" }).first().waitFor();
  await ui.isAccessible("the overview");
  await runs(ui, job);
  await isDrawn(ui, 3);
  await savepoint(ui);
  await ui.page.reload();
  await said(ui, "It is complete, and the job goes on.");
  await ui.isAccessible("the page of a job");
  await cancel(ui);
}

/** Savepoint, rescale, drain, start again from the savepoint, cancel. */
export async function wholeLife(ui, { job }) {
  await ui.goto("/");
  await ui.page.getByRole("link", { name: "flights" }).first().waitFor();
  await ui.isAccessible("the overview");
  await runs(ui, job);
  await isDrawn(ui, 3);
  await ui.picture("job");
  await ui.isAccessible("the graph of a job");
  await visitAll(ui, job);
  await savepoint(ui);
  await ui.picture("operation-savepoint");
  await rescale(ui, job);
  const points = await drain(ui);
  const next = await startAgain(ui, points);
  await runs(ui, next);
  await cancel(ui);
  await ui.isAccessible("the page of a job that is cancelled");
}

/** The graph of a job: so many vertices, each where one sees it, none above another one, and lines between them. */
export async function isDrawn(ui, count) {
  const nodes = ui.page.locator(".react-flow__node");
  await nodes.nth(count - 1).waitFor();
  const boxes = await Promise.all((await nodes.all()).map((node) => node.boundingBox()));
  demand(boxes.length === count, `${boxes.length} vertices are drawn, not ${count}`);
  const frame = await ui.page.locator(".react-flow").boundingBox();
  const inside = ({ x, y, width, height }) =>
    width > 20 &&
    height > 10 &&
    x >= frame.x - 1 &&
    x + width <= frame.x + frame.width + 1 &&
    y >= frame.y - 1;
  demand(boxes.every(inside), `each vertex is seen: ${JSON.stringify(boxes)} in ${JSON.stringify(frame)}`);
  const apart = (a, b) =>
    a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y;
  demand(
    boxes.every((a, i) => boxes.slice(i + 1).every((b) => apart(a, b))),
    `no vertex hides another one: ${JSON.stringify(boxes)}`,
  );
  await ui.page
    .locator(".react-flow__edge-path")
    .nth(count - 2)
    .waitFor({ state: "attached" });
}

/** Each page of the cluster, and of the job. */
export async function visitAll(ui, job, look = () => undefined) {
  for (const name of ["Pages", "Of this job"]) {
    await ui.goto(`/jobs/${job}`);
    const links = ui.page.getByRole("navigation", { name }).getByRole("link");
    const titles = await links.allInnerTexts();
    demand(titles.length > 0, `there are links in "${name}"`);
    for (const title of titles) {
      await ui.page.getByRole("navigation", { name }).getByRole("link", { name: title, exact: true }).click();
      await ui.page.locator(".skeleton").first().waitFor({ state: "hidden" });
      await ui.isAccessible(`the page ${title}`);
      await look(title);
      if (name === "Pages") await ui.goto(`/jobs/${job}`);
    }
  }
  await runs(ui, job);
}

/** One subtask more of the vertex of a slider: by itself that of the windows. */
export async function rescale(ui, job, { slider = 1 } = {}) {
  const dialog = await asked(ui, "Rescale", "Change the parallelism");
  demand(await dialog.getByRole("button", { name: "Rescale" }).isDisabled(), "nothing has changed yet");
  const sliders = dialog.getByRole("slider");
  await sliders.nth(slider).focus();
  await ui.page.keyboard.press("ArrowRight");
  await dialog.getByText("3 slots, 1 more than now").waitFor();
  await ui.picture("dialog-rescale-moved");
  await dialog.getByRole("button", { name: "Rescale" }).click();
  await ui.page.reload(); // whoever asked is not needed any more
  await said(ui, "The job runs with it");
  const info = await ui.json(`/unistream/jobs/${job}`);
  demand(
    info.subtasks.some(({ index }) => index === 2),
    "a vertex has a third subtask",
  );
  await runs(ui, job);
}

export async function drain(ui) {
  const dialog = await asked(ui, "Drain", "Drain: be done with the stream");
  await dialog.getByRole("button", { name: "Drain the job" }).click();
  const operation = await said(ui, "The stream is done");
  const point = await copied(ui, operation, "A job can start from");
  const proof = await copied(ui, operation, "After the end of all windows");
  demand(point !== proof, `${point} and ${proof} are two savepoints`);
  await ui.page.locator(".title .badge", { hasText: "FINISHED" }).waitFor();
  await ui.picture("operation-drain");
  await ui.isAccessible("the page of a job that is drained");
  return { point, proof };
}

/** The id of the new job. */
export async function startAgain(ui, { point, proof }) {
  await ui.page.getByRole("button", { name: "Start again from it" }).click();
  const dialog = ui.page.getByRole("dialog", { name: "Start again from a restore point" });
  demand(await dialog.getByRole("button", { name: "Start a job" }).isDisabled(), "a point has to be chosen");
  demand((await dialog.getByText(proof).count()) === 0, "nothing goes on from the end of all windows");
  await dialog.getByText(point).click();
  await ui.isAccessible("the dialog that starts a job again");
  await ui.picture("dialog-start");
  await dialog.getByRole("button", { name: "Start a job" }).click();
  await said(ui, "A new job goes on from there.");
  await ui.page.getByRole("link", { name: "To the new job" }).click();
  await ui.page.waitForURL((url) => !url.pathname.endsWith(point));
  await ui.page.locator(".title .badge", { hasText: "RUNNING" }).waitFor();
  return new URL(ui.page.url()).pathname.split("/")[3];
}

/** Several at once; nobody answers for a while; a refusal; the job ends while somebody reads a dialog. */
export async function refusals(ui, { job }) {
  await runs(ui, job);
  for (let number = 0; number < 2; number += 1) {
    const dialog = await asked(ui, "Savepoint", "Take a savepoint");
    await dialog.getByRole("button", { name: "Take it" }).click();
  }
  const complete = ui.page.locator(".operation", { hasText: "It is complete, and the job goes on." });
  await complete.nth(1).waitFor();
  await hideAll(ui);

  ui.forgive(/ERR_INTERNET_DISCONNECTED/);
  let dialog = await asked(ui, "Savepoint", "Take a savepoint");
  await ui.page.context().setOffline(true);
  await dialog.getByRole("button", { name: "Take it" }).click();
  await said(ui, "It is asked again.");
  await ui.picture("operation-away");
  await ui.page.context().setOffline(false);
  await complete.first().waitFor();
  await hideAll(ui);

  ui.forgive(/\b400\b/);
  dialog = await asked(ui, "Savepoint", "Take a savepoint");
  await dialog.getByLabel("Directory of the savepoint").fill("savepoints");
  await dialog.getByRole("button", { name: "Take it" }).click();
  await said(
    ui,
    "Refused, and nothing has changed: savepoint directory 'savepoints': give an absolute path or a URL",
  );
  await ui.isAccessible("a refusal");
  await hideAll(ui);

  dialog = await asked(ui, "Stop", "Stop with a savepoint");
  await asOwner(`${ui.url}/jobs/${job}`, { method: "PATCH" });
  await dialog.getByText("The job has ended as CANCELED.").waitFor();
  demand(
    (await dialog.getByRole("button", { name: "Stop the job" }).count()) === 0,
    "nothing is left to confirm",
  );
  await ui.page.keyboard.press("Escape");
  await dialog.waitFor({ state: "hidden" });
}

export async function hideAll(ui) {
  const hide = ui.page.getByRole("button", { name: /^Hide/ });
  while ((await hide.count()) > 0) await hide.first().click();
}

/** Where the configuration says that pages change nothing. */
export async function turnedOff(ui, { job }) {
  await runs(ui, job);
  await ui.page.getByText("This page changes nothing in this cluster").waitFor();
  demand((await ui.page.getByRole("group", { name: "Actions" }).count()) === 0, "no action is offered");
  await ui.isAccessible("the page of a job that it does not change");
  ui.forgive(/\b403\b/);
  const status = await ui.page.evaluate(
    async (id) =>
      (await fetch(`/jobs/${id}`, { method: "PATCH", headers: { "X-Unistream-Page": "1" } })).status,
    job,
  );
  demand(status === 403, `what is asked for all the same is refused, not ${status}`);
  await runs(ui, job);
}

/**
 * The JobManager ends after "ready", another one takes its place after "asked": what was asked for meanwhile is done by
 * that one.
 */
export async function anotherLeader(ui, { job }) {
  await runs(ui, job);
  const dialog = await asked(ui, "Stop", "Stop with a savepoint");
  ui.forgive(/ERR_CONNECTION|ERR_EMPTY_RESPONSE|\b503\b/);
  console.log("ready");
  await ui.page.getByText("The JobManager does not answer.").first().waitFor();
  await dialog.getByRole("button", { name: "Stop the job" }).click();
  await said(ui, "It is asked again.");
  console.log("asked");
  await said(ui, "The job has ended, and everything up to its savepoint is in the sinks.");
  await ui.page.locator(".title .badge", { hasText: "FINISHED" }).waitFor();
  console.log("done");
}

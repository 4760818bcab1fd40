/** Names, rows and errors that are no words: shown as they are, never executed, inside of the page. */
import { runs, visitAll } from "./actions.mjs";
import { demand } from "./browser.mjs";

/** `called`: the job; `error`: of the message of one that has failed. */
export async function hostile(ui, { job, failed, called, error }) {
  const isHarmless = async (what) => {
    demand((await ui.page.evaluate(() => globalThis.ran)) === undefined, `${what}: nothing of it has run`);
    demand((await ui.page.locator("img, main script").count()) === 0, `${what}: it is text`);
    await ui.fits(what);
  };
  await runs(ui, job);
  demand((await ui.page.getByRole("heading", { level: 1 }).innerText()) === called, "the name is as it is");
  await visitAll(ui, job, isHarmless);
  await ui.picture("hostile-job");
  await ui.page.locator(".react-flow__node").first().click();
  await ui.page.waitForURL((url) => url.searchParams.has("vertex"));
  await isHarmless("the panel of a vertex");
  await ui.goto(`/jobs/${job}/log`);
  await ui.page.getByText("onerror").first().waitFor();
  await isHarmless("the log");
  await ui.picture("hostile-log");
  await rows(ui, job);
  await isHarmless("rows of a state");
  for (const page of ["", "/exceptions", "/timeline"]) {
    await ui.goto(`/jobs/${failed}${page}`);
    await ui.page.getByText(error).first().waitFor({ state: "attached" });
    await isHarmless(`a failure${page}`);
    await ui.isAccessible(`a failure${page}`);
  }
  await ui.picture("hostile-failure");
  await ui.goto("/");
  await ui.page.getByRole("searchbox").fill("onerror");
  await ui.page.locator(".hits li").first().waitFor();
  await isHarmless("the search");
  await ui.isAccessible("the search");
}

async function rows(ui, job) {
  await ui.until(
    async () => (await ui.json(`/unistream/jobs/${job}`)).checkpoints_completed > 0,
    "there is a checkpoint",
  );
  await ui.goto(`/jobs/${job}/state`);
  await ui.page
    .getByLabel("SQL over these states")
    .fill(`SELECT '<img src=x onerror="window.ran=1">' AS "<script>window.ran=1</script>"`);
  await ui.page.getByRole("button", { name: "Run" }).click();
  await ui.page.getByRole("cell", { name: "onerror" }).waitFor();
  await ui.picture("hostile-rows");
}

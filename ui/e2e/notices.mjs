/** What others have to do with a job: Dagster's runs and assets, commands of a terminal, a sink that is slow. */
import { demand } from "./browser.mjs";

/** Links to the run that has started it, and to its assets. */
export async function dagster(ui, { job, run, asset, base }) {
  await ui.goto(`/jobs/${job}`);
  const line = ui.page.getByRole("main").locator("p", { hasText: "Dagster:" });
  await line.waitFor();
  const targets = await line.getByRole("link").evaluateAll((links) => links.map((link) => link.href));
  demand(targets.includes(`${base}/runs/${run}`), `there is a link to the run: ${targets}`);
  demand(targets.includes(`${base}/assets/${asset}`), `there is a link to the asset: ${targets}`);
  await ui.fits("the line of Dagster");
  await ui.isAccessible("a job with runs of Dagster");
  await ui.picture("dagster-line");
}

/** A backfill that was interrupted: on its page, and on that of its job, with the command that goes on. */
export async function procedures(ui, { job, command }) {
  for (const path of ["/procedures", `/jobs/${job}`]) {
    await ui.goto(path);
    const card = ui.page.getByRole("article", { name: "Backfill of flights" });
    await card.waitFor();
    const text = await card.innerText();
    demand(/interrupted/i.test(text), `it says where it is: ${text}`);
    demand((await card.locator('[aria-current="step"]').innerText()).includes("replace it"), "its next step");
    await card.getByRole("button", { name: /^Copy/ }).click();
    const copied = await ui.page.evaluate(() => navigator.clipboard.readText());
    demand(copied === command, `what goes on with it is copied: ${copied}`);
    await ui.isAccessible(`an unfinished backfill, ${path}`);
    await ui.picture(`procedures${path.replaceAll("/", "-")}`);
  }
}

/** A sink whose commits do not keep up. */
export async function slowCommits(ui, { job, sink }) {
  await ui.goto(`/jobs/${job}`);
  const notice = ui.page.getByText(new RegExp(`${sink} waits for its commits: \\d+ checkpoints`)).first();
  await notice.waitFor();
  const text = await notice.innerText();
  demand(/the oldest for \d/.test(text), `since when: ${text}`);
  demand(text.includes("a longer checkpoint interval"), `what helps: ${text}`);
  await ui.isAccessible("a sink that waits for its commits");
  await ui.picture("slow-commits");
}

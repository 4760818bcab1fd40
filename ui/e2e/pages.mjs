/** Pages that draw what a job or a file says. */
import { demand } from "./browser.mjs";

/** Two jobs, of which one reads what the other writes. */
export async function feeds(ui, { table }) {
  await ui.goto("/");
  await ui.page.getByRole("heading", { name: "Jobs that feed each other" }).waitFor();
  await ui.page.locator(".react-flow__node").nth(2).waitFor();
  const line = ui.page.locator(".feed-lines li");
  demand((await line.count()) === 1, "one place is shared");
  const said = await line.innerText();
  demand(
    said.includes(table) && /written by writes.*, read by reads/.test(said),
    `the list says it: ${said}`,
  );
  await ui.isAccessible("jobs that feed each other");
  await ui.picture("feeds");
  await ui.page.getByRole("searchbox").fill("lake");
  await ui.page.locator(".hits li", { hasText: "reads" }).first().waitFor();
  await ui.page.getByRole("searchbox").fill("");
  await ui.page.locator(".react-flow__node", { hasText: "reads" }).click();
  await ui.page.getByRole("heading", { level: 1, name: "reads" }).waitFor();
}

/** The plan of a pipeline, the story of a run, and files that are neither. */
export async function files(ui, { plan, story }) {
  await ui.goto("/explain");
  await ui.page.getByLabel("Plan", { exact: true }).setInputFiles(story);
  await ui.page.getByText("This is no plan of a pipeline.").waitFor();
  await ui.page.getByLabel("Plan", { exact: true }).setInputFiles(plan);
  await ui.page.locator(".react-flow__node").nth(1).waitFor();
  await ui.page.getByRole("cell", { name: "rows" }).first().waitFor();
  await ui.isAccessible("the plan of a pipeline");
  await ui.picture("plan");
  await ui.goto("/simulation");
  await ui.page.getByLabel("Story of a run").setInputFiles(plan);
  await ui.page.getByText("This is no story.").waitFor();
  await ui.page.getByLabel("Story of a run").setInputFiles(story);
  await ui.page.getByText("ended as FINISHED").waitFor();
  const few = await ui.page.locator(".story-row").count();
  await ui.page.getByLabel("also messages that arrived").check();
  await ui.page.locator(".story-row.is-message").first().waitFor();
  demand(new URL(ui.page.url()).searchParams.get("messages") === "true", "the URL says what is shown");
  demand(few > 0, "without messages there are lines, too");
  await ui.isAccessible("the story of a run");
  await ui.picture("story");
}

/** Dead letters, as somebody corrects them. */
import { demand } from "./browser.mjs";

/** Corrects one row, and saves the file for the replay at `file`. */
export async function correct(ui, { job, file }) {
  await ui.goto(`/jobs/${job}/dead-letters`);
  await ui.page.getByLabel("Pipeline of a replay, MODULE:FUNCTION").fill("fares:build");
  await ui.page.getByRole("button", { name: "Show the rows" }).first().click();
  const letter = ui.page.locator(".letter", { hasText: "<b>free</b>" });
  await letter.waitFor();
  await ui.isAccessible("the rows of dead letters");
  await ui.picture("dead-letters");
  await letter.getByRole("button", { name: "Correct the row" }).click();
  const box = letter.getByLabel("The row, as JSON");
  const before = await box.inputValue();
  await box.fill("{");
  await letter.getByText("This is no JSON object.").waitFor();
  await box.fill(before.replace("<b>free</b>", "120"));
  await letter.getByText("This is no JSON object.").waitFor({ state: "detached" });
  await ui.isAccessible("a row that is corrected");
  const corrections = ui.page.getByRole("region", { name: "Corrections" });
  await corrections.getByText("replay").first().waitFor();
  const [saved] = await Promise.all([
    ui.page.waitForEvent("download"),
    corrections.getByRole("link", { name: "Save edits.jsonl" }).click(),
  ]);
  demand(saved.suggestedFilename() === "edits.jsonl", `the file is called ${saved.suggestedFilename()}`);
  await saved.saveAs(file);
  const text = await corrections.innerText();
  demand(text.includes("fares:build --edits edits.jsonl"), `the command is there: ${text}`);
}

/** Dead letters, as somebody corrects them. */
import { demand } from "./browser.mjs";

/** Corrects one row, saves the file for the command at `file`, and replays: first that row, then the others. */
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

  await ui.page.getByRole("button", { name: "Replay 1 corrected letter…" }).click();
  const region = ui.page.getByRole("region", { name: "Replay", exact: true });
  await region.getByText("Each letter is replayed once").waitFor();
  await ui.isAccessible("a replay that is about to be asked for");
  await ui.picture("replay-asked");
  await region.getByRole("button", { name: "Replay", exact: true }).click();
  await ui.page.getByText("A replay is under way: see above.").waitFor();
  await ui.picture("replay-under-way");
  const said = ui.page.getByRole("list", { name: "What was asked for" });
  await said.getByText("1 letter was replayed.").waitFor();
  await letter.getByText("replayed already").waitFor();
  await corrections.waitFor({ state: "detached" });
  await ui.picture("replay-done");

  await ui.page.getByRole("button", { name: "Replay 1 letter…" }).click();
  await region.getByRole("button", { name: "Replay", exact: true }).click();
  await said.getByText("1 letter was replayed; 1 failed again, and is a new letter in its table.").waitFor();
  await ui.page.getByText("attempt 2").waitFor();
  await ui.isAccessible("replays that are over");
  await ui.picture("replay-failed-again");
  await said.getByRole("link", { name: "To the job of the replay" }).first().click();
  await ui.page.getByRole("heading", { level: 1, name: "replay of fares" }).waitFor();
}

/** How a host joins by what the page says, and what is seen of it; and where no host can. */
import { asOwner, demand } from "./browser.mjs";

/** Makes a token with bad input first, prints the command to type on a host, and waits until that is there. */
export async function joining(ui) {
  await ui.goto("/workers");
  await ui.page.locator(".fact").filter({ hasText: "Hosts" }).getByRole("link").click();
  await ui.page.getByRole("heading", { level: 1, name: "Hosts" }).waitFor();
  await ui.page.getByText("There is no token with which a host could join now.").waitFor();
  await ui.isAccessible("hosts without a worker");
  await ui.page.getByRole("button", { name: "New join token" }).click();
  const dialog = ui.page.getByRole("dialog");
  const make = dialog.getByRole("button", { name: "Make it" });
  for (const wrong of ["0", "1.5", "-1", ""]) {
    await dialog.getByLabel("Hosts").fill(wrong);
    demand(await make.isDisabled(), `${wrong} hosts cannot join`);
  }
  await dialog.getByLabel("Hosts").fill("2");
  await dialog.getByLabel("Name").fill("rack <b>7</b>");
  await ui.isAccessible("the dialog of a join token");
  await make.click();
  await dialog.getByText("shown this once").waitFor();
  await ui.isAccessible("a join token");
  await ui.fits("a join token");
  await dialog.getByRole("button", { name: /^Copy/ }).click();
  await ui.page.waitForFunction(async () => (await navigator.clipboard.readText()).startsWith("unistream "));
  const command = await ui.page.evaluate(() => navigator.clipboard.readText());
  await dialog.getByRole("button", { name: "Done" }).click();
  await dialog.waitFor({ state: "detached" });
  const text = command.split(" ").at(-1);
  demand(!(await ui.page.content()).includes(text), "its text is shown once");
  const row = ui.page.getByRole("row").filter({ hasText: "rack <b>7</b>" });
  await row.getByRole("cell", { name: "2", exact: true }).waitFor();
  console.log(command);
  console.log("made");
  const host = ui.page.locator(".host").filter({ hasText: "1 worker" });
  await host.getByText("serves").waitFor({ timeout: 120_000 });
  await row.getByRole("cell", { name: "1", exact: true }).waitFor();
  await ui.isAccessible("hosts");
  await ui.fits("hosts");
  await ui.picture("hosts");
  await ui.page.getByRole("link", { name: "certificates", exact: true }).click();
  await issued(ui);
  await ui.goto("/hosts");
  await row.getByRole("button", { name: "Revoke" }).click();
  await dialog.getByRole("button", { name: "Revoke it" }).click();
  await ui.page.getByText("There is no token with which a host could join now.").waitFor();
  console.log("seen");
}

/** Of the process that has joined, and of another authority once somebody has rotated it. */
async function issued(ui) {
  await ui.page.getByRole("heading", { level: 1, name: "Certificates" }).waitFor();
  const process = ui.page.getByRole("row").filter({ hasText: "tm-" });
  await process.getByText("valid").waitFor();
  await ui.isAccessible("certificates");
  await ui.fits("certificates");
  const headers = { "Content-Type": "application/json" };
  const body = JSON.stringify({ keepMs: 86_400_000 });
  const answer = await asOwner(`${ui.url}/unistream/certificates/rotation`, {
    method: "POST",
    headers,
    body,
  });
  const { fingerprint } = await answer.json();
  await process.getByText("start it again").waitFor();
  await ui.page.getByText("Former authority").waitFor();
  const groups = fingerprint.match(/.{4}/g).join(" ");
  await ui.page.getByText(groups).waitFor();
  await ui.picture("certificates");
}

/** A cluster of one machine says so, and what would change it; so does one whose places have no end of names. */
export async function alone(ui) {
  await ui.goto("/hosts");
  await ui.page.getByText("This cluster takes no workers of other hosts").waitFor();
  await ui.isAccessible("hosts of one machine");
  await ui.goto("/cluster");
  await ui.page.getByRole("heading", { name: "Room" }).waitFor();
  await ui.page
    .getByText(/\d % free/)
    .first()
    .waitFor();
  await ui.page.getByRole("link", { name: "certificates", exact: true }).click();
  await ui.page.getByText("This cluster has no certificates").waitFor();
  await ui.isAccessible("no certificates");
  await ui.page.keyboard.press("g");
  await ui.page.keyboard.press("n");
  await ui.page.getByRole("heading", { level: 1, name: "Hosts" }).waitFor();
}

/** What reaches everybody: by keys alone, in any width, on paper, without motion, by a screen reader; and what is said of a job that is gone. */
import { runs } from "./actions.mjs";
import { asOwner, demand } from "./browser.mjs";

const WIDTHS = [400, 2_560];
const TABS = [
  "",
  "/timeline",
  "/checkpoints",
  "/state",
  "/commits",
  "/dead-letters",
  "/exceptions",
  "/log",
  "/plan",
];
const PAGES = [
  "/",
  "/workers",
  "/cluster",
  "/history",
  "/procedures",
  "/explain",
  "/simulation",
  "/tokens",
  "/audit",
  "/hosts",
  "/certificates",
];

export async function byEverybody(ui, { job }) {
  await runs(ui, job);
  await byKeys(ui);
  await withoutMotion(ui, job);
  for (const width of WIDTHS) {
    await ui.page.setViewportSize({ width, height: 900 });
    for (const path of [...PAGES, ...TABS.map((tab) => `/jobs/${job}${tab}`)]) {
      await ui.goto(path);
      await ui.fits(`${path} at ${width}`);
    }
  }
  await audited(ui);
  await onPaper(ui, job);
}

/** What has the focus, by its name. */
const focused = (ui) =>
  ui.page.evaluate(
    () => document.activeElement?.getAttribute("aria-label") ?? document.activeElement?.textContent,
  );

async function byKeys(ui) {
  const { keyboard } = ui.page;
  const help = ui.page.getByRole("dialog", { name: "Keys" });
  await ui.page.getByRole("button", { name: "Keys and help" }).focus();
  await keyboard.press("Enter");
  await help.waitFor();
  await keyboard.press("?"); // it is open already
  await keyboard.press("Escape");
  await help.waitFor({ state: "hidden" });
  demand((await focused(ui)) === "Keys and help", "the help gives the focus back");
  await keyboard.press("?");
  await help.waitFor();
  await keyboard.press("Escape");
  await help.waitFor({ state: "hidden" });
  const before = ui.page.url();
  const button = ui.page
    .getByRole("group", { name: "Actions" })
    .getByRole("button", { name: "Cancel", exact: true });
  await button.focus();
  await keyboard.press("Enter");
  const dialog = ui.page.getByRole("dialog", { name: "Cancel" });
  await dialog.waitFor();
  for (const key of ["g", "o", "/", "?"]) await keyboard.press(key);
  demand(
    ui.page.url() === before && (await dialog.isVisible()),
    "keys of the page wait for the answer to a dialog",
  );
  demand(!(await help.isVisible()), "so does the help");
  const isInside = () =>
    dialog.evaluate(
      (one) => one.contains(document.activeElement) || document.activeElement === document.body,
    );
  for (let step = 0; step < 6; step += 1) {
    await keyboard.press("Tab");
    demand(await isInside(), "Tab stays in a dialog");
  }
  await keyboard.press("Escape");
  await dialog.waitFor({ state: "hidden" });
  demand((await focused(ui)) === "Cancel", "a dialog gives the focus back");
  await keyboard.press("g");
  await keyboard.press("a");
  await ui.page.getByRole("heading", { level: 1, name: "Audit log" }).waitFor();
}

/** Nothing moves for whoever wants that, and every picture has a name. */
async function withoutMotion(ui, job) {
  for (const tab of ["", "/checkpoints", "/timeline"]) {
    await ui.goto(`/jobs/${job}${tab}`);
    await ui.page.locator(".skeleton").first().waitFor({ state: "detached" });
    const moving = await ui.page.evaluate(
      () => document.getAnimations().filter(({ playState }) => playState === "running").length,
    );
    demand(moving === 0, `nothing moves: ${tab} ${moving}`);
    const nameless = await ui.page.evaluate(
      () =>
        [
          ...document.querySelectorAll(
            'main [role="img"], main svg:not([aria-hidden="true"] *, [aria-hidden="true"])',
          ),
        ]
          .filter((one) => !one.closest(".react-flow"))
          .filter((one) => !one.getAttribute("aria-label")).length,
    );
    demand(nameless === 0, `each picture has a name: ${tab} ${nameless}`);
  }
}

/** What this browser has done stands in the log, in words, and a URL keeps what was looked for. */
async function audited(ui) {
  const body = JSON.stringify({ name: "<script>wall</script>", scope: "read", lastsMs: 1_000 });
  const headers = { "content-type": "application/json" };
  const made = await asOwner(`${ui.url}/unistream/tokens`, { method: "POST", body, headers });
  demand(made.ok, `there is a token: ${made.status}`);
  await ui.goto("/audit");
  const row = ui.page.getByRole("row").filter({ hasText: "made a token" }).first();
  await row.waitFor();
  await ui.isAccessible("the audit log");
  demand(/UTC$/.test((await row.locator("time").getAttribute("title")) ?? ""), "UTC when one points at it");
  await ui.page.getByLabel("Outcome").selectOption("refused");
  await ui.page.getByText("entries is like this").waitFor();
  await ui.page.reload();
  await ui.page.getByText("entries is like this").waitFor();
  await ui.picture("audit");
}

async function onPaper(ui, job) {
  await ui.page.setViewportSize({ width: 1_000, height: 1_400 });
  await ui.goto(`/jobs/${job}/checkpoints`);
  await ui.page.emulateMedia({ media: "print", colorScheme: "dark" });
  demand(!(await ui.page.getByRole("banner").isVisible()), "the bar is not on paper");
  const [paper, ink] = await ui.page.evaluate(() => {
    const of = (one) => globalThis.getComputedStyle(one);
    return [of(document.documentElement).backgroundColor, of(document.querySelector("main h1")).color];
  });
  demand(paper === "rgb(255, 255, 255)", `paper is white: ${paper}`);
  const light = /\d+/g;
  demand(
    ink
      .match(light)
      .slice(0, 3)
      .every((part) => Number(part) < 128),
    `ink is dark: ${ink}`,
  );
  await ui.fits("paper");
  await ui.page.emulateMedia({ media: "screen", colorScheme: "light" });
}

/** The history loses a job while its page is open; it says "shown" when that can happen. */
export async function removed(ui, { job }) {
  await ui.goto(`/jobs/${job}`);
  await ui.page.locator(".title .badge", { hasText: "FAILED" }).waitFor();
  ui.forgive(/\b404\b/);
  console.log("shown");
  const gone = ui.page.getByText("This job was removed from the history.");
  await gone.waitFor();
  const actions = ui.page.getByRole("group", { name: "Actions" });
  demand((await actions.count()) === 0, "nothing can be done to it any more");
  await ui.page
    .getByRole("navigation", { name: "Of this job" })
    .getByRole("link", { name: "Checkpoints" })
    .click();
  await ui.page.getByText("not looked at while the job was still known").waitFor();
  demand(await gone.isVisible(), "it is said on all of its pages");
  demand((await ui.page.getByText("asked for again").count()) === 0, "and once");
  await ui.isAccessible("a job that is gone");
  await ui.picture("removed");
  await ui.page.reload();
  await ui.page.getByText("may have been removed").waitFor();
}

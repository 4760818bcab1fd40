/**
 * One case against a cluster that runs: `node e2e/run.mjs MODULE CASE URL JSON`. Exit code 1, and why on stderr, if it fails.
 *
 * The cluster and its jobs are the business of whoever calls it (tests/browser/web_ui.py). A new case is a function that is
 * exported by a module of this folder: it gets the browser (browser.mjs) and what stands in JSON.
 */
import { opened } from "./browser.mjs";

const [module, name, url, given] = process.argv.slice(2);
const cases = await import(`./${module}.mjs`);
const { size, colorScheme, ...more } = JSON.parse(given ?? "{}");
const ui = await opened(url, { size, colorScheme });
try {
  await cases[name](ui, more);
} catch (error) {
  const shown = await ui.page.evaluate(() => document.body.innerText).catch(() => "no page");
  console.error(`${error.stack ?? error}\n\nThe page ${ui.page.url()} shows:\n${shown.slice(0, 4_000)}`);
  process.exitCode = 1;
}
await ui.close().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});

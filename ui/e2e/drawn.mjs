/** Pages drawn from given answers, at a clock that stands still, and compared with pictures that somebody has looked at. */
import { Buffer } from "node:buffer";
import { existsSync, readFileSync, writeFileSync } from "node:fs";

import { demand } from "./browser.mjs";

const STATIC = /^\/(ui|assets)\/|^\/icon\.svg$/;
const CHANNEL = 48; // of 255: edges of letters differ by less
const PART_MAX = 0.01;
const STALE_MS = 12_000;

/**
 * Each case of a file. `folder` has the pictures; one that is missing is made, with `renew` all are. `found`: where those go
 * that are unlike, and all in full size.
 */
export async function drawn(ui, { file, folder, renew, found }) {
  const { cases, now } = JSON.parse(readFileSync(file, "utf8"));
  ui.forgive(/./); // answers of 503 are on the console
  const blank = await ui.browser.newPage();
  const unlike = [];
  for (const one of cases) {
    const picture = await draw(ui, one, now, found);
    const path = `${folder}/${one.name}.webp`;
    if (renew || !existsSync(path)) {
      writeFileSync(path, picture);
      continue;
    }
    const part = await differs(blank, picture, readFileSync(path));
    if (part > PART_MAX) {
      writeFileSync(`${found}/${one.name}-unlike.webp`, picture);
      unlike.push(`${one.name}: ${(part * 100).toFixed(1)} % of its pixels`);
    }
  }
  demand(unlike.length === 0, `unlike (see ${found}):\n${unlike.join("\n")}`);
}

async function draw(ui, { name, path, size, colorScheme, answers, state }, now, found) {
  const context = await ui.browser.newContext({
    viewport: size,
    colorScheme,
    ...{ reducedMotion: "reduce", locale: "en-GB", timezoneId: "UTC" },
  });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  let gone = false;
  await page.clock.setFixedTime(now);
  await page.route("**/*", (route) => {
    const { pathname } = new URL(route.request().url());
    if (STATIC.test(pathname)) return route.continue();
    if (gone) return route.abort("connectionrefused");
    if (pathname === "/unistream/events") return answer(route, 503, { errors: ["no stream"] });
    if (state === "loading" && pathname !== "/unistream/identity") return undefined; // for ever
    const [status, body] = answers[pathname] ?? [404, { errors: [`there is no ${pathname}`] }];
    return answer(route, status, body);
  });
  await page.goto(`${ui.url}/ui${path}`);
  await page
    .locator(state === "loading" ? ".skeleton" : state === "refused" ? "main .notice" : "main h1")
    .first()
    .waitFor();
  if (state === "stale") {
    gone = true;
    await page.clock.setFixedTime(now + STALE_MS);
    await page.locator(".live-notices [role=alert]").waitFor();
  }
  if (state !== "loading") await page.locator(".skeleton").first().waitFor({ state: "detached" });
  await page.waitForLoadState("networkidle").catch(() => undefined);
  await page.evaluate(() => document.fonts.ready);
  const taken = { fullPage: state !== "huge", animations: "disabled", caret: "hide" };
  await page.waitForTimeout(300); // the graph fits itself into its box
  if (found) await page.screenshot({ ...taken, path: `${found}/${name}.png` });
  const whole = await page.screenshot(taken);
  await context.close();
  return smaller(ui, whole);
}

function answer(route, status, body) {
  return route.fulfill({ status, contentType: "application/json", body: JSON.stringify(body) });
}

/** A picture of half the width, which has a tenth of the bytes: edges of letters may differ anyway. */
export async function smaller(ui, picture) {
  const page = await ui.browser.newPage();
  const data = await page.evaluate(async (base64) => {
    const image = await globalThis.createImageBitmap(
      await (await fetch(`data:image/png;base64,${base64}`)).blob(),
    );
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width, image.height].map((length) => Math.round(length / 2));
    const context = canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    return canvas.toDataURL("image/webp", 0.75).split(",")[1];
  }, picture.toString("base64"));
  await page.close();
  return Buffer.from(data, "base64");
}

/** The part of the pixels that differ; 1 if the sizes do. */
function differs(page, one, other) {
  return page.evaluate(
    async ([pictures, channel]) => {
      const [a, b] = await Promise.all(
        pictures.map(async (base64) => {
          const image = await globalThis.createImageBitmap(
            await (await fetch(`data:image/webp;base64,${base64}`)).blob(),
          );
          const context = new globalThis.OffscreenCanvas(image.width, image.height).getContext("2d");
          context.drawImage(image, 0, 0);
          return context.getImageData(0, 0, image.width, image.height);
        }),
      );
      if (a.width !== b.width || a.height !== b.height) return 1;
      let number = 0;
      for (let at = 0; at < a.data.length; at += 4) {
        if ([0, 1, 2].some((index) => Math.abs(a.data[at + index] - b.data[at + index]) > channel)) number++;
      }
      return number / (a.width * a.height);
    },
    [[one, other].map((picture) => picture.toString("base64")), CHANNEL],
  );
}

/** Pages of others in the same browser change nothing. */
import { createServer } from "node:http";

import { chromium } from "playwright-core";

import { runs } from "./actions.mjs";
import { demand, LAUNCHED } from "./browser.mjs";

const STRANGER = "stranger.example";

/** From another port of this machine, from a sandboxed frame, and by a name that resolves to it. */
export async function strangers(ui, { job }) {
  await runs(ui, job); // otherwise nothing could be stopped anyway
  const server = createServer((_, answer) =>
    answer.setHeader("content-type", "text/html").end("<h1>A stranger</h1>"),
  );
  await new Promise((listens) => server.listen(0, "127.0.0.1", listens));
  const { port } = server.address();
  const rule = `MAP ${STRANGER} 127.0.0.1`;
  const browser = await chromium.launch({
    ...LAUNCHED,
    args: [...LAUNCHED.args, `--host-resolver-rules=${rule}`],
  });
  try {
    for (const host of ["127.0.0.1", "localhost", STRANGER]) {
      const page = await browser.newPage();
      await page.goto(`http://${host}:${port}/`);
      await page.evaluate(tryAll, { url: ui.url, job });
      await submitForm(page, ui.url, job);
    }
    const page = await browser.newPage();
    // Its own name, our port: for the browser the page is of our origin.
    const own = ui.url.replace("127.0.0.1", STRANGER);
    const answer = await page.goto(`${own}/ui/`);
    demand(answer.status() === 403, `${own} is refused, not ${answer.status()}`);
    const statuses = await page.evaluate(tryAll, { url: own, job });
    demand(
      statuses.every((status) => status === 403),
      `all is refused, not ${statuses.join()}`,
    );
  } finally {
    await browser.close();
    server.close();
  }
  const info = await ui.json(`/unistream/jobs/${job}`);
  demand(info.state === "RUNNING" && info.savepoint === null, `it is as it was, not ${info.state}`);
}

/** Runs in the page: every way to ask for something, with what a script may set. */
async function tryAll({ url, job }) {
  const json = { "content-type": "application/json", "X-Unistream-Page": "1" };
  const ways = [
    [`/jobs/${job}/stop`, { method: "POST", mode: "no-cors", body: "{}" }],
    [
      `/jobs/${job}/stop`,
      { method: "POST", mode: "no-cors", body: "{}", headers: { "content-type": "text/plain" } },
    ],
    [`/v1/jobs/${job}/stop`, { method: "POST", headers: json, body: "{}" }],
    [`/jobs/${job}`, { method: "PATCH" }],
    [`/jobs/${job}`, { method: "PATCH", headers: json }],
    ["/cluster", { method: "DELETE" }],
  ];
  const statuses = [];
  for (const [path, options] of ways) {
    const answer = await fetch(url + path, options).catch((error) => error);
    statuses.push(answer.status ?? answer.name);
  }
  navigator.sendBeacon(`${url}/jobs/${job}/stop`, new Blob(["{}"], { type: "text/plain" }));
  return statuses;
}

async function submitForm(page, url, job) {
  const answered = page.waitForResponse(
    (response) => response.url().startsWith(url) && response.request().isNavigationRequest(),
  );
  await page.evaluate(
    ([action]) => {
      const form = Object.assign(document.createElement("form"), {
        method: "post",
        enctype: "text/plain",
        action,
      });
      form.append(
        Object.assign(document.createElement("input"), { name: '{"drain":true,"a":"', value: '"}' }),
      );
      document.body.append(form);
      form.submit();
    },
    [`${url}/jobs/${job}/stop`],
  );
  const status = (await answered).status();
  demand(status === 403, `a form is refused, not ${status}`);
}

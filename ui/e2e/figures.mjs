/**
 * Measures pages of a cluster that runs: `node e2e/figures.mjs PART URL JSON` prints one line of JSON, and while it lasts
 * lines for people on stderr. The cluster and its jobs are the business of `benchmarks/web_ui.py`, which calls it.
 */
import { chromium } from "playwright-core";

import { LAUNCHED, SIZES, linkTo } from "./browser.mjs";

const WAIT_MS = 300_000;
const FRAME_MS = 1_000 / 60;
const MB = 1_000_000;
const ROWS = "main table tbody tr";
/** Samples are kept for five minutes, so until then a page has to grow. */
const FILLED_MIN = 5.5;

async function started() {
  const browser = await chromium.launch(LAUNCHED);
  const context = await browser.newContext({ viewport: SIZES.wide });
  const page = await context.newPage();
  page.setDefaultTimeout(WAIT_MS);
  const protocol = await context.newCDPSession(page);
  await protocol.send("Performance.enable", { timeDomain: "threadTicks" }); // processor time, not that of a clock
  return { browser, page, protocol };
}

/** With somebody who is signed in. */
async function signedIn(url) {
  const found = await started();
  await found.page.goto(await linkTo(url));
  await found.page.getByRole("navigation", { name: "Pages" }).waitFor();
  return found;
}

async function metrics(protocol) {
  const { metrics: found } = await protocol.send("Performance.getMetrics");
  return Object.fromEntries(found.map(({ name, value }) => [name, value]));
}

/** Notes in the page when an element with each of these selectors is there and the frame with it was painted. */
async function noting(page, selectors) {
  await page.addInitScript((wanted) => {
    const noted = (globalThis.noted = {});
    const look = () => {
      for (const [name, selector] of Object.entries(wanted)) {
        if (noted[name] === undefined && document.querySelector(selector) !== null) {
          noted[name] = performance.now();
          requestAnimationFrame(() => setTimeout(() => (noted[`${name} painted`] = performance.now())));
        }
      }
    };
    new MutationObserver(look).observe(document, { childList: true, subtree: true });
  }, selectors);
}

const noted = async (page, name) => {
  await page.waitForFunction((key) => globalThis.noted[key] !== undefined, `${name} painted`);
  return page.evaluate(() => globalThis.noted);
};

/** A browser for each run, so nothing is in its cache; somebody opens a link in it. */
async function first(url, { runs }) {
  const shown = [];
  let facts = {};
  for (let run = 0; run < runs; run += 1) {
    const { browser, page, protocol } = await started();
    await noting(page, { rows: ROWS });
    await page.goto(await linkTo(url), { waitUntil: "commit" });
    shown.push((await noted(page, "rows"))["rows painted"]);
    const { TaskDuration } = await metrics(protocol);
    facts = await page.evaluate(() => {
      const resources = performance.getEntriesByType("resource");
      return {
        requests: resources.length + 1,
        kb_unpacked: Math.round(resources.reduce((sum, one) => sum + one.encodedBodySize, 0) / 1_000),
        first_paint_ms: Math.round(performance.getEntriesByName("first-contentful-paint")[0]?.startTime),
      };
    });
    facts.cpu_ms = Math.round(TaskDuration * 1_000);
    await browser.close();
  }
  shown.sort((a, b) => a - b);
  return { shown_ms: shown.map(Math.round), median_ms: Math.round(at(shown, 0.5)), ...facts };
}

/** What the frames of the next seconds take, while `meanwhile` goes on. */
async function frames(page, protocol, seconds, meanwhile = async () => {}) {
  const [before, began] = [await metrics(protocol), Date.now()];
  await page.evaluate(() => {
    const seen = (globalThis.seen = { frames: [], long: [], charts: 0, last: performance.now() });
    const frame = (now) => {
      seen.frames.push(now - seen.last);
      seen.last = now;
      seen.next = requestAnimationFrame(frame);
    };
    seen.next = requestAnimationFrame(frame);
    seen.tasks = new PerformanceObserver((list) =>
      seen.long.push(...list.getEntries().map((one) => one.duration)),
    );
    seen.tasks.observe({ entryTypes: ["longtask"] });
    seen.lines = new MutationObserver((changes) => (seen.charts += changes.length));
    seen.lines.observe(document.querySelector("main"), { attributeFilter: ["points"], subtree: true });
  });
  const until = began + seconds * 1_000;
  while (Date.now() < until) {
    await meanwhile();
    await page.waitForTimeout(100);
  }
  const seen = await page.evaluate(() => {
    const { frames: taken, long, charts, tasks, lines, next } = globalThis.seen;
    cancelAnimationFrame(next);
    tasks.disconnect();
    lines.disconnect();
    return { taken: taken.slice(1), long, charts };
  });
  const after = await metrics(protocol);
  const taken = seen.taken.sort((a, b) => a - b);
  const elapsed = taken.reduce((sum, ms) => sum + ms, 0) / 1_000;
  return {
    frames_per_s: round(taken.length / elapsed),
    frame_ms: { p50: round(at(taken, 0.5)), p95: round(at(taken, 0.95)), p99: round(at(taken, 0.99)) },
    late_frames: round(taken.filter((ms) => ms > 1.5 * FRAME_MS).length / taken.length, 4),
    long_tasks: { number: seen.long.length, longest_ms: Math.round(Math.max(0, ...seen.long)) },
    charts_per_s: round(seen.charts / elapsed),
    page_core_share: round((1_000 * (after.TaskDuration - before.TaskDuration)) / (Date.now() - began), 3),
  };
}

/** The overview, once each of its lines has points. */
async function filled(page, url, jobs) {
  await page.goto(`${url}/ui/`);
  await page.waitForFunction(
    (wanted) => document.querySelectorAll("main table polyline").length >= wanted,
    jobs,
  );
}

async function charts(url, { jobs, seconds }) {
  const { browser, page, protocol } = await signedIn(url);
  await filled(page, url, jobs);
  const found = await frames(page, protocol, seconds);
  await browser.close();
  return found;
}

async function heap(page, protocol) {
  for (let round = 0; round < 2; round += 1) await protocol.send("HeapProfiler.collectGarbage");
  const { usedSize } = await protocol.send("Runtime.getHeapUsage");
  const { nodes, jsEventListeners } = await protocol.send("Memory.getDOMCounters");
  return { mb: usedSize / MB, nodes, listeners: jsEventListeners };
}

/** The heap after each round, for so many minutes; its growth from the minute on in which all is filled. */
async function heaps(page, protocol, minutes, round_) {
  const found = [];
  const began = Date.now();
  while (found.length < 3 || (Date.now() - began) / 60_000 < minutes) {
    await round_(found.length);
    const one = { minute: (Date.now() - began) / 60_000, ...(await heap(page, protocol)) };
    console.error(
      `minute ${one.minute.toFixed(1)}: ${one.mb.toFixed(2)} MB, ${one.nodes} nodes, ${one.listeners} listeners`,
    );
    found.push(one);
  }
  const from = Math.min(FILLED_MIN, minutes / 2);
  const late = found.filter(({ minute }) => minute >= from);
  return {
    minutes: round(found.at(-1).minute),
    mb: round(late.at(-1).mb, 2),
    mb_at_first: round(found[0].mb, 2),
    grows_mb_per_hour: round(60 * slope(late.map(({ minute, mb }) => [minute, mb])), 2),
    nodes: [late[0].nodes, late.at(-1).nodes],
    listeners: [late[0].listeners, late.at(-1).listeners],
  };
}

async function memory(url, { jobs, minutes }) {
  const { browser, page, protocol } = await signedIn(url);
  await filled(page, url, jobs);
  const found = await heaps(page, protocol, minutes, () => page.waitForTimeout(15_000));
  await browser.close();
  return found;
}

const TABS = [
  "Timeline",
  "Checkpoints",
  "State",
  "Commits",
  "Exceptions",
  "Log",
  "Plan",
  "Configuration",
  "Graph",
];

/** Each round: the overview, a job with its tabs, the pages of the cluster. */
async function visits(url, { minutes }) {
  const { browser, page, protocol } = await signedIn(url);
  await filled(page, url, 1);
  const go = (name, link) =>
    page.getByRole("navigation", { name }).getByRole("link", { name: link, exact: true }).click();
  let rounds = 0;
  const found = await heaps(page, protocol, minutes, async () => {
    rounds += 1;
    await page.locator(`${ROWS} a`).first().click();
    for (const tab of TABS) {
      await go("Of this job", tab);
      await page.locator(".skeleton").first().waitFor({ state: "hidden" });
    }
    await page.locator(".react-flow__node").first().waitFor();
    for (const name of ["Workers", "Cluster", "History", "Overview"]) {
      await go("Pages", name);
      await page.locator(".skeleton").first().waitFor({ state: "hidden" });
    }
    await page.locator(`${ROWS} a`).first().waitFor();
    await page.waitForTimeout(1_000);
  });
  await browser.close();
  return { rounds, ...found };
}

/** A large job: opened, laid out, left alone, scrolled, and one of its vertices. */
async function wide(url, { job, vertices, seconds }) {
  const { browser, page, protocol } = await signedIn(url);
  const before = await metrics(protocol);
  await noting(page, { graph: ".react-flow__node", rows: ROWS });
  await page.goto(`${url}/ui/jobs/${job}`, { waitUntil: "commit" });
  const times = await noted(page, "graph");
  const laidOut = await page.evaluate(() => performance.getEntriesByName("graph laid out")[0].duration);
  const opened = await metrics(protocol);
  await page
    .locator(ROWS)
    .nth(vertices - 1)
    .waitFor();
  await page.waitForTimeout(3_000);
  const still = await frames(page, protocol, seconds);
  await page.mouse.move(700, 450);
  await page.locator(ROWS).nth(20).scrollIntoViewIfNeeded();
  let down = 0;
  const scrolled = await frames(page, protocol, seconds, async () => {
    down += 1;
    await page.mouse.wheel(0, down % 80 < 40 ? 400 : -400);
  });
  const began = Date.now();
  await page.goto(`${url}/ui/jobs/${job}?vertex=${await lastVertex(page)}`);
  await page.getByRole("group", { name: "Subtasks" }).locator("tbody tr").nth(10).waitFor();
  const panelMs = Date.now() - began;
  const { mb, nodes } = await heap(page, protocol);
  await browser.close();
  return {
    rows_painted_ms: Math.round(times["rows painted"]),
    laid_out_ms: Math.round(laidOut),
    graph_painted_ms: Math.round(times["graph painted"]),
    opened_cpu_ms: Math.round((opened.TaskDuration - before.TaskDuration) * 1_000),
    still,
    scrolled,
    with_panel_ms: panelMs,
    heap_mb: round(mb),
    nodes,
  };
}

async function lastVertex(page) {
  const link = await page.locator(`${ROWS} a`).last().getAttribute("href");
  return new URL(link, page.url()).searchParams.get("vertex");
}

// --- numbers ---

const round = (value, digits = 1) => Number(value.toFixed(digits));

/** `part` of the way through sorted values. */
const at = (sorted, part) => sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))];

/** Of the line through these points, by least squares. */
function slope(points) {
  const [x, y] = [0, 1].map((axis) => points.reduce((sum, point) => sum + point[axis], 0) / points.length);
  const over = points.reduce((sum, [at_, value]) => sum + (at_ - x) * (value - y), 0);
  return over / points.reduce((sum, [at_]) => sum + (at_ - x) ** 2, 0);
}

const PARTS = { first, charts, memory, visits, wide };
const [part, url, given] = process.argv.slice(2);
console.log(JSON.stringify(await PARTS[part](url, JSON.parse(given))));

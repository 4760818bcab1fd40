import type { JobInfo } from "../src/api/schema";
import {
  NAMES,
  NOW_MS,
  JOB,
  PROCEDURES,
  chains,
  identity,
  job,
  jobInList,
  overview,
  plan,
  wide,
} from "./fixtures";
import { type Answer, Page, type Story } from "./story";

const FEATURES = { body: { features: { "web-cancel": true } } } as const;
const EMPTY = { body: overview([]) } as const;

function page(
  group: string,
  name: string,
  path: string,
  shows: string,
  paths: Readonly<Record<string, Answer>> = {},
  otherwise: Answer = "never",
): Story {
  return {
    group,
    name,
    shows,
    show: () => <Page path={path} />,
    answers: { paths, otherwise },
  };
}

const OVERVIEW = "/unistream/overview";
/** A page of a job of which all but `paths` is known. */
function ofJob(
  name: string,
  info: JobInfo,
  shows: string,
  more: Readonly<Record<string, Answer>> = {},
): Story {
  return page("Job", name, `/jobs/${JOB}`, shows, {
    [OVERVIEW]: EMPTY,
    "/config": FEATURES,
    "/unistream/identity": { body: identity("admin") },
    "/run-links": { body: { links: [] } },
    ...more,
    [`/unistream/jobs/${JOB}`]: { body: info },
  });
}

const BROKEN = job([], {
  state: "FAILED",
  ended_ms: NOW_MS,
  name: NAMES.html,
  exceptions: [
    {
      at_ms: NOW_MS,
      kind: "ValueError",
      message: NAMES.html,
      traceback: "Traceback",
      attempt: null,
      task_manager: null,
      task_name: null,
      endpoint: null,
      concurrent: [],
    },
  ],
});

const graphOf = (vertices: number): Record<string, Answer> => ({
  "/plan": { body: { plan: plan(vertices) } },
  "/vertices": {
    body: chains(
      Array.from({ length: vertices }, (_, index) => `vertex ${index}`),
      20,
    ),
  },
});

export const PAGES: readonly Story[] = [
  page("Overview", "away", "/", "The JobManager does not answer", {}, "away"),
  page("Overview", "empty", "/", "starts one", { [OVERVIEW]: EMPTY }),
  page("Overview", "full", "/?which=all", NAMES.rightToLeft, {
    [OVERVIEW]: {
      body: overview(
        [
          ...Object.values(NAMES).map((name, index) => jobInList(name, "RUNNING", `${index}`.repeat(32))),
          jobInList("broken", "FAILED", "b".repeat(32)),
          jobInList("restarts", "RESTARTING", "c".repeat(32)),
        ],
        ["The metadata database is slow."],
      ),
    },
  }),
  page("Overview", "huge", "/?which=all", "job 119", {
    [OVERVIEW]: {
      body: overview(
        Array.from({ length: 120 }, (_, index) =>
          jobInList(
            `job ${index}`,
            index < 20 ? "RUNNING" : "FINISHED",
            index.toString(16).padStart(32, "0"),
          ),
        ),
      ),
    },
  }),
  page("Backfills and upgrades", "empty", "/procedures", "None has been reported", {
    "/unistream/procedures": { body: { now_ms: NOW_MS, procedures: [], notes: [] } },
  }),
  page("Backfills and upgrades", "unreadable", "/procedures", "1 backfill is not listed", {
    "/unistream/procedures": {
      body: { now_ms: NOW_MS, procedures: [], notes: [`1 backfill is not listed: ${NAMES.html}`] },
    },
  }),
  page("Backfills and upgrades", "full", "/procedures", "may have died", {
    "/unistream/procedures": { body: { now_ms: NOW_MS, procedures: PROCEDURES, notes: [] } },
  }),
  page("Plan of a pipeline", "empty", "/explain", "before it is submitted"),
  page("Story of a run", "empty", "/simulation", "unistream simulate"),
  page("Job", "loading", `/jobs/${JOB}`, "unistream", {}),
  page(
    "Job",
    "gone",
    `/jobs/${JOB}`,
    "removed from the history",
    {},
    {
      status: 404,
      errors: ["There is no job a."],
    },
  ),
  ofJob("full", wide(3, 2), "vertex 2", graphOf(3)),
  ofJob("huge", wide(500, 20), "vertex 499", graphOf(500)),
  ofJob("broken", BROKEN, "onerror", { "/plan": { body: { plan: plan(0) } } }),
  ...(["html", "long", "rightToLeft"] as const).map((name) =>
    ofJob(`named: ${name}`, wide(1, 1, { name: NAMES[name] }), "Checkpoints", graphOf(1)),
  ),
];

/** Each page of the cluster and each tab of a job in all its states. */
import type { QueryAnswer } from "../src/api/schema";
import { NAMES, jobInList, overview } from "./fixtures";
import { type Bodies, DETAILS, EMPTY, FULL, HUGE, NOW_MS, RECORDED, WORKER, answered } from "./recorded";
import { type Answer, Page, STATES, type State, type Story } from "./story";

const REFUSED = { status: 503, errors: ["The metadata database does not answer."] } as const;
const OLD = "What stands here is from";
const AWAY = "does not answer";

/** What each page says when it is empty, full and huge: texts that prove it. `own`: what it asks for beside the job. */
interface Shown {
  readonly group: string;
  readonly path: string;
  readonly own: readonly string[];
  /** Of what stands around it, once that is there. */
  readonly loading?: string;
  readonly empty: string;
  readonly full: string;
  readonly huge: string;
  /** What is answered in place of what all are. */
  readonly bodies?: Partial<typeof BODIES>;
}

const CLUSTER: readonly Shown[] = (
  [
    ["Overview", "/?which=all", "starts one", "flights", "59 "],
    ["Workers", "/workers", "There is no worker", "tm-6669ebda9b46", "tm-59"],
    ["Cluster", "/cluster", "Cluster", "Cluster", "Cluster"],
    ["History", "/history", "No job that has ended is like this", "ended", "59 "],
    ["Backfills and upgrades", "/procedures", "None has been reported", "may have died", "interrupted"],
    ["Hosts", "/hosts", "No host has a worker", "slots free", "59 "],
    ["Certificates", "/certificates", "has no certificates", "of before", "599 "],
    ["Audit log", "/audit", "Nobody has changed anything", "cancelled the job", "the first 500 of them"],
    ["Submit", "/submit", "plans no pipelines", "Plan it", "/srv/59 "],
    ["Tokens", "/tokens?ended=true", "There is no token", "revoked", "299 "],
  ] as const
).map(([group, path, empty, full, huge]) => ({ group, path, own: ["/unistream/"], empty, full, huge }));

const TABS: readonly Shown[] = (
  [
    ["", "/plan", "Watermark lag", "flights -> pre-aggregate", "flights -> pre-aggregate"],
    ["batch", "", "It has not begun", "stage 2", "stage 59"],
    ["timeline", "/timeline", "Checkpoints", "lake committer", "59 "],
    ["checkpoints", "/checkpoints", "There is no checkpoint yet", "subtasks have acknowledged", "60"],
    ["state", "/state", "No operator has state", "pre-aggregate-1", "59 "],
    ["commits", "/commits", "No sink of this job has committed", "lake", "59 "],
    ["dead-letters", "/dead-letters", "No row has failed", "free", "59 "],
    ["exceptions", "", "Nothing has failed", "fare_of", "59 "],
    ["log", "/log", "have logged nothing", "Copy 1 lines", "Copy 2,000 lines"],
    ["plan", "/explain", "Only how this job has ended", "job graph", "1 xxx"],
    ["configuration", "", "Writes", "A job can start from", "A job can start from"],
  ] as const
).map(([tab, own, empty, full, huge]) => ({
  group: `Job: ${tab === "" ? "graph" : tab}`,
  path: `/jobs/${RECORDED}${tab === "" ? "" : `/${tab}`}`,
  own: own === "" ? [] : [own],
  loading: "Last checkpoint",
  empty,
  full,
  huge,
}));

const BODIES: Readonly<Record<"empty" | "full" | "huge", Partial<Bodies>>> = {
  empty: EMPTY,
  full: FULL,
  huge: HUGE,
};

function storyOf({ group, path, own, bodies, ...shows }: Shown, state: State): Story {
  const isOfJob = path.startsWith("/jobs/") || bodies !== undefined;
  const asks = (one: string) => own.some((end) => (isOfJob ? one.endsWith(end) : one.startsWith(end)));
  const found = answered(state === "empty" || state === "huge" ? { ...BODIES, ...bodies }[state] : FULL);
  const paths = Object.fromEntries(
    Object.entries(found).map(([one, body]): [string, Answer] => {
      if (!asks(one)) return [one, body];
      return [one, state === "loading" ? "never" : state === "refused" ? REFUSED : body];
    }),
  );
  const stale = state === "stale" ? { later: REFUSED } : {};
  return {
    group,
    name: state,
    shows: { loading: "", ...shows, refused: AWAY, stale: OLD }[state],
    show: () => <Page path={path} asksAgain={state === "stale" ? shows.full : null} />,
    ...(group === "Job: dead-letters" && state !== "empty" ? { press: ["Show the rows"] } : {}),
    answers: { paths, otherwise: state === "refused" ? REFUSED : "never", ...stale },
  };
}

const OF_JOB = `/jobs/${RECORDED}`;

/** What is opened in a page, with answers of its own; all else is `full`. */
const PANELS: readonly Shown[] = [
  {
    group: "Vertex",
    path: `${OF_JOB}?vertex=${DETAILS.vertices[0]?.id ?? ""}`,
    own: ["/vertices"],
    loading: "Watermark lag",
    ...{ empty: "This job has no such vertex", full: "incidents.py:269", huge: "incidents.py:269" },
    bodies: {
      empty: { ...FULL, vertices: { vertices: [] } },
      huge: { ...FULL, ...(HUGE.info === undefined ? {} : { info: HUGE.info }) },
    },
  },
  {
    group: "Log of a worker",
    path: `/workers?worker=${WORKER}`,
    own: [`/unistream/workers/${WORKER}/log`],
    loading: "Less",
    ...{ empty: "It is empty.", full: "event=started", huge: "event=started" },
    bodies: {
      empty: { ...FULL, workerLog: { size_bytes: 0, text: "" } },
      huge: { ...FULL, workerLog: { size_bytes: 1e12, text: "event=started\n".repeat(20_000) } },
    },
  },
];

/** A tab with more of the URL, or other answers; all else is `full`. */
function more(
  group: string,
  name: string,
  path: string,
  shows: string,
  also: Record<string, Answer> = {},
): Story {
  const paths = { ...answered(FULL), ...also };
  return {
    ...{ group, name, shows },
    show: () => <Page path={path} />,
    answers: { paths, otherwise: "never" },
    state: "full",
  };
}

const ROWS: QueryAnswer = {
  ...{ checkpoint_id: 20, kind: "checkpoint", taken_ms: NOW_MS, took_ms: 12 },
  limits: { rows: 1_000 } as QueryAnswer["limits"],
  result: {
    type: "rows",
    columns: [{ name: "n", type: "string" }],
    rows: [[NAMES.html]],
    more: true,
    cut: 0,
  },
};

/** One job writes what the other one reads. */
const FED = overview(
  (["writes", "reads"] as const).map((does, index) => {
    const found = jobInList(does, "RUNNING", `${index}`.repeat(32));
    if (found.figures !== null) found.figures[does] = ["kafka://a/topic"];
    return found;
  }),
);

/** The history loses a job while its page is open. */
function removed(tab: string, shows: string): Story {
  const gone = { status: 404, errors: [`there is no job ${RECORDED}`] };
  const whole = FULL.info === undefined ? null : { ...FULL.info, state: "FINISHED", ended_ms: NOW_MS };
  const savepoint = "file:///data/savepoints/flights";
  const paths = { ...answered(FULL), [OF_JOB_API]: { body: { ...whole, savepoint } } };
  return {
    ...{ group: "Job that is removed", name: tab, shows, state: "stale" },
    hides: ["asked for again", "It may have been removed", "Start again", "Cancel"],
    show: () => <Page path={`${OF_JOB}/${tab}`} asksAgain="Last checkpoint" />,
    answers: {
      ...{ paths, otherwise: "never" },
      laterOf: Object.fromEntries(
        ["", "/timeline", "/checkpoints", "/state", "/commits"].map((end) => [`${OF_JOB_API}${end}`, gone]),
      ),
    },
  };
}

const OF_JOB_API = `/unistream/jobs/${RECORDED}`;

/** Of a job whose cluster has found no snapshot. */
function withoutState(name: string, state: string, shows: string): Story {
  const none = { status: 404, errors: [`job ${RECORDED} has no complete checkpoint or savepoint`] };
  const body = { ...FULL.info, state, ended_ms: state === "RUNNING" ? null : NOW_MS };
  const checkpoints = EMPTY.checkpoints;
  const story = more("Job: state", name, `${OF_JOB}/state`, shows, {
    [OF_JOB_API]: { body },
    [`${OF_JOB_API}/state`]: none,
    [`${OF_JOB_API}/checkpoints`]: { body: { ...checkpoints, completed: state === "CANCELED" ? 3 : 0 } },
  });
  return { ...story, state: "empty", hides: ["It may have been removed"] };
}

/** What is asked of the cluster there. */
function replayed(state: State, shows: string, answer: Answer): Story {
  const paths = { [`${OF_JOB_API}/dead-letters/replays`]: answer };
  const story = more("Replay of letters", state, `${OF_JOB}/dead-letters`, shows, paths);
  return { ...story, state, press: ["Show the rows", "Replay ", "Replay"] };
}

const MORE: readonly Story[] = [
  replayed("loading", "Not now", "never"),
  replayed("refused", NAMES.html, { status: 409, errors: [`another replay runs ${NAMES.html}`] }),
  removed("state", "This job was removed from the history."),
  removed("timeline", "file:///data/savepoints/flights"),
  withoutState("cancelled", "CANCELED", "it was cancelled, and its checkpoints were deleted"),
  withoutState("ended at once", "FAILED", "before its first checkpoint"),
  withoutState("not yet", "RUNNING", "no checkpoint is complete"),
  more("Job: checkpoints", "two compared", `${OF_JOB}/checkpoints?id=20&other=19`, "19"),
  more("Job: state", "rows", `${OF_JOB}/state?sql=SELECT%201`, "There are more rows than these", {
    "/unistream/savepoints/query": { body: ROWS },
  }),
  more("Overview", "jobs that feed each other", "/", "written by", {
    "/unistream/overview": { body: FED },
  }),
];

export const TABS_AND_PAGES: readonly Story[] = [
  ...[...CLUSTER, ...TABS, ...PANELS].flatMap((shown) =>
    STATES.filter((state) => shown.own.length > 0 || (state !== "refused" && state !== "loading")).map(
      (state) => storyOf(shown, state),
    ),
  ),
  ...MORE,
];

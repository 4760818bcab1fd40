/**
 * What a cluster has answered (`python -m tests.browser.drawn` records it), with what a job that runs well has not, and what
 * becomes of it where there is nothing yet, and where there is very much.
 */
import type {
  AuditPage,
  CertificatesShown,
  PlanningShown,
  CheckpointsInfo,
  ClusterInfo,
  JobCommits,
  JobDetails,
  JobExplained,
  JobInfo,
  JobLogLine,
  JobTimeline,
  IdentityShown,
  JobsPage,
  LettersPage,
  Overview,
  ProceduresNow,
  SnapshotContents,
  TokensShown,
  Vertices,
  WorkerLog,
  WorkersInfo,
} from "../src/api/schema";
import { CERTIFICATES, DEEDS, DISKS, NAMES, PROCEDURES, TOKENS, jobInList } from "./fixtures";
import given from "./recorded.json";
import type { Answer } from "./story";

export const RECORDED = given.job;
const JOB = `/unistream/jobs/${RECORDED}`;
const MANY = 60;

/** What stories change; all else is answered as it was recorded. */
export interface Bodies {
  readonly info: JobInfo;
  readonly timeline: JobTimeline;
  readonly checkpoints: CheckpointsInfo;
  readonly state: SnapshotContents;
  readonly commits: JobCommits;
  readonly log: readonly JobLogLine[];
  readonly explain: JobExplained;
  readonly vertices: Vertices;
  readonly letters: LettersPage;
  readonly overview: Overview;
  readonly workerLog: WorkerLog;
  readonly workers: WorkersInfo;
  readonly cluster: ClusterInfo;
  readonly history: JobsPage;
  readonly procedures: ProceduresNow;
  readonly tokens: TokensShown;
  readonly identity: IdentityShown;
  readonly audit: AuditPage;
  readonly certificates: CertificatesShown;
  readonly plans: PlanningShown;
}

const ANSWERS = new Map(
  Object.entries(given.answers).map(([path, [, body]]): [string, unknown] => [path, body]),
);
const [FIRST] = (ANSWERS.get("/unistream/workers") as WorkersInfo).workers;
export const WORKER = FIRST?.worker.id ?? "";

const PATHS: Readonly<Record<keyof Bodies, string>> = {
  info: JOB,
  timeline: `${JOB}/timeline`,
  checkpoints: `${JOB}/checkpoints`,
  state: `${JOB}/state`,
  commits: `${JOB}/commits`,
  log: `${JOB}/log`,
  explain: `${JOB}/explain`,
  vertices: `${JOB}/vertices`,
  letters: `${JOB}/dead-letters`,
  overview: "/unistream/overview",
  workerLog: `/unistream/workers/${WORKER}/log`,
  workers: "/unistream/workers",
  cluster: "/unistream/cluster",
  history: "/unistream/history",
  procedures: "/unistream/procedures",
  tokens: "/unistream/tokens",
  identity: "/unistream/identity",
  audit: "/unistream/audit",
  certificates: "/unistream/certificates",
  plans: "/unistream/plans",
};

/** The answer of that page as it was recorded: of a job that runs well. */
export function recorded<K extends keyof Bodies>(name: K): Bodies[K] {
  return ANSWERS.get(PATHS[name]) as Bodies[K];
}

export const NOW_MS = recorded("overview").now_ms;

/** Answers by path, some of them changed. */
export function answered(changed: Partial<Bodies> = {}): Record<string, Answer> {
  const all = new Map(ANSWERS);
  for (const [name, body] of Object.entries(changed)) all.set(PATHS[name as keyof Bodies], body);
  return Object.fromEntries([...all].map(([path, body]) => [path, { body }]));
}

export const DETAILS = ANSWERS.get(`/jobs/${RECORDED}`) as JobDetails;

const LINE: JobLogLine = {
  seq: 1,
  at_ms: NOW_MS - 2_000,
  level: "WARNING",
  logger: "fares",
  message: `no fare in row 7 ${NAMES.html}`,
  task: "flights (1/2)",
  dropped: 0,
};

const LETTERS: LettersPage = {
  type: "letters",
  are_records: true,
  letters: [
    {
      letter: "l1",
      operator: "fare",
      operator_uid: "fare",
      error: `invalid literal ${NAMES.html}`,
      error_at: null,
      error_type: "ValueError",
      attempt: 0,
      event_time_ms: null,
      time_ms: NOW_MS,
      row: '{"n": "free"}',
      is_cut: false,
      replayed: false,
      replay_of: null,
    },
  ],
  groups: [
    {
      ...{ operator: "fare", operator_uid: "fare", error_type: "ValueError" },
      ...{ letters: 3, replayed: 1, attempts: 1, first_ms: NOW_MS, last_ms: NOW_MS },
    },
  ],
  more: 2,
  no_replay: null,
  limits: {
    ...{ letters: 200, seconds: 20, text_characters: 10_000 },
    ...{ answer_bytes: 4_194_304, memory_bytes: 1_073_741_824 },
  },
};

const info = recorded("info");

/** With everything that a page can show. */
export const FULL: Partial<Bodies> = {
  info: {
    ...info,
    exceptions: [
      {
        at_ms: NOW_MS - 30_000,
        kind: "UserCodeError",
        message: "operator 'fare': function 'fare_of' raised ValueError",
        traceback: "Traceback (most recent call last):",
        attempt: `${RECORDED}/v#0.0`,
        task_manager: "tm-1",
        task_name: "flights (1/2)",
        endpoint: "10.0.0.7:40111",
        concurrent: [],
      },
    ],
    dead_letters: { fare: 3 },
    writes: { ...info.writes, "fares-dead-letters": ["file:///data/lake/letters"] },
    stages: stages(3),
  },
  log: [LINE],
  letters: LETTERS,
  workerLog: { size_bytes: 2_000, text: "event=started" },
  procedures: { ...recorded("procedures"), procedures: [...PROCEDURES] },
  tokens: { tokens: [...TOKENS] },
  audit: { entries: [...DEEDS] },
  certificates: CERTIFICATES,
  cluster: { ...recorded("cluster"), disks: [...DISKS] },
  plans: planning(true, "/srv/pipelines"),
  history: { ...recorded("history"), jobs: [jobInList("ended", "FAILED", RECORDED).summary] },
};

function planning(enabled: boolean, folder: string): PlanningShown {
  return {
    enabled,
    folder,
    limits: { seconds: 60, memory_bytes: 2 ** 31, file_bytes: 2 ** 28, answer_bytes: 2 ** 26 },
  };
}

function stages(number: number): JobInfo["stages"] {
  return Array.from({ length: number }, (_, index) => ({
    name: `stage ${index}`,
    tasks: 4,
    running: index === 1 ? 2 : 0,
    finished: index === 0 ? 4 : index === 1 ? 1 : 0,
    failed: index === 1 ? 1 : 0,
    rows_in: 1_000 * index,
    rows_out: 900,
    shuffle_bytes: 4_096,
  }));
}

/** A cluster that nobody uses yet, and a job that has just begun. */
export const EMPTY: Partial<Bodies> = {
  info: {
    ...info,
    checkpoints: [],
    exceptions: [],
    state: "INITIALIZING",
    metrics: {},
    subtasks: [],
    stages: [],
  },
  timeline: {
    ...recorded("timeline"),
    states: [],
    executions: [],
    checkpoints: [],
    commits: [],
    failures: [],
  },
  checkpoints: { ...recorded("checkpoints"), latest: [], latest_completed: null, completed: 0 },
  state: { ...recorded("state"), operators: [] },
  commits: { ...recorded("commits"), sinks: [], commits: [] },
  vertices: { vertices: [] },
  log: [],
  explain: { text: "" },
  overview: { ...recorded("overview"), jobs: [], workers: 0, slots: 0, free_slots: 0 },
  workers: { ...recorded("workers"), workers: [] },
  cluster: { ...recorded("cluster"), options: [], disks: [] },
  certificates: { ...CERTIFICATES, authorities: [], rest: null, rest_renewed_ms: null, processes: [] },
  history: { ...recorded("history"), jobs: [], next: null },
  procedures: { ...recorded("procedures"), procedures: [] },
  tokens: { tokens: [] },
  audit: { entries: [] },
  plans: planning(false, ""),
};

const WORDS = Object.values(NAMES);
const odd = (index: number) => `${index} ${WORDS[index % WORDS.length] ?? ""}`;

/** So many of each of these, in turn. */
function many<T>(of: readonly T[], change: (one: T, index: number) => T, number = MANY): T[] {
  return of.length === 0
    ? []
    : Array.from({ length: number }, (_, index) => change(of[index % of.length] as T, index));
}

/** Many of everything, with names that nobody likes. */
export const HUGE: Partial<Bodies> = {
  ...FULL,
  info: {
    ...info,
    ...FULL.info,
    name: NAMES.long,
    exceptions: many(FULL.info?.exceptions ?? [], (one, index) => ({
      ...one,
      at_ms: index,
      attempt: `${index}`,
      message: odd(index),
    })),
    subtasks: many(info.subtasks, (one, index) => ({ ...one, index })),
    dead_letters: Object.fromEntries(many(["fare"], (_, index) => odd(index)).map((name) => [name, 7])),
    stages: stages(MANY),
  },
  timeline: {
    ...recorded("timeline"),
    executions: many(recorded("timeline").executions, (one, index) => ({ ...one, vertex_name: odd(index) })),
  },
  checkpoints: {
    ...recorded("checkpoints"),
    latest: many(recorded("checkpoints").latest, (one, index) => ({ ...one, checkpoint_id: MANY - index })),
  },
  state: {
    ...recorded("state"),
    operators: many(recorded("state").operators, (one, index) => ({ ...one, uid: odd(index) })),
  },
  commits: {
    ...recorded("commits"),
    sinks: many(recorded("commits").sinks, (one, index) => ({ ...one, plain: index === 1, uid: odd(index) })),
  },
  log: many([LINE], (one, index) => ({ ...one, seq: index + 1, message: odd(index) }), 2_000),
  explain: { text: odd(1).repeat(2_000) },
  letters: {
    ...LETTERS,
    letters: many(LETTERS.letters, (one, index) => ({ ...one, letter: `${index}`, row: odd(index) })),
  },
  overview: {
    ...recorded("overview"),
    jobs: many(WORDS, (_, index) => odd(index)).map((name, index) =>
      jobInList(name, index % 7 === 0 ? "FAILED" : "RUNNING", index.toString(16).padStart(32, "0")),
    ),
  },
  workers: {
    ...recorded("workers"),
    workers: many(recorded("workers").workers, (one, index) => ({
      ...one,
      worker: { ...one.worker, id: `tm-${index}`, host: odd(index) },
    })),
  },
  history: {
    ...recorded("history"),
    jobs: many(WORDS, (_, index) => odd(index)).map(
      (name, index) => jobInList(name, "FAILED", index.toString(16).padStart(32, "0")).summary,
    ),
  },
  procedures: {
    ...recorded("procedures"),
    procedures: many(PROCEDURES, (one, index) => ({ ...one, report: { ...one.report, id: `${index}` } })),
  },
  cluster: { ...recorded("cluster"), disks: [...DISKS] },
  certificates: {
    ...CERTIFICATES,
    processes: many(CERTIFICATES.processes, (one, index) => ({ ...one, name: odd(index) }), 600),
    left_out: 7,
  },
  plans: planning(true, `/srv/59 ${NAMES.html}/${NAMES.long}`),
  audit: { entries: many(DEEDS, (one, index) => ({ ...one, name: odd(index) }), 600) },
  tokens: {
    tokens: many(
      TOKENS,
      (one, index) => ({ ...one, id: `${index}`.padStart(12, "0"), name: odd(index) }),
      300,
    ),
  },
};

import type {
  AuditEntry,
  CertificateShown,
  CertificatesShown,
  CheckpointInfo,
  DiskShown,
  IdentityShown,
  JobInList,
  JobInfo,
  Overview,
  Plan,
  Procedure,
  ProcedureState,
  SubtaskInfo,
  TaskMetrics,
  TokenShown,
  Vertices,
} from "../src/api/schema";

export const NOW_MS = Date.UTC(2026, 10, 29, 12);
export const JOB = "a".repeat(32);

/** Names that people give, and that a page has to bear. */
export const NAMES = {
  plain: "flights",
  long: "x".repeat(300),
  rightToLeft: "رحلات الطيران",
  html: "<script>throw new Error('run')</script><img src=x onerror=alert(1)>",
  lines: "a\nb",
} as const;

export function identity(scope: IdentityShown["scope"], more: Partial<IdentityShown> = {}): IdentityShown {
  return {
    token: "0a1b2c3d4e5f",
    name: `browser of ${NAMES.html}`,
    scope,
    expiresMs: NOW_MS + 43_200_000,
    ...more,
  };
}

const TOKEN: TokenShown = {
  id: "3f9c0d12ab45",
  name: "nightly",
  scope: "operate",
  createdMs: NOW_MS - 86_400_000,
  expiresMs: NOW_MS + 86_400_000 * 90,
  revokedMs: null,
  usedMs: NOW_MS - 3_600_000,
  usesLeft: null,
};

/** In each state, with names that nobody expects. */
export const TOKENS: readonly TokenShown[] = [
  TOKEN,
  { ...TOKEN, id: identity("admin").token, name: "browser of me", scope: "admin", usedMs: null },
  { ...TOKEN, id: "1".repeat(12), name: "for ever", expiresMs: null },
  { ...TOKEN, id: "2".repeat(12), name: "expired", expiresMs: NOW_MS - 1_000 },
  { ...TOKEN, id: "3".repeat(12), name: "revoked", revokedMs: NOW_MS - 2_000 },
  ...Object.values(NAMES).map((name, index) => ({ ...TOKEN, id: `${index}`.padStart(12, "f"), name })),
];

const ISSUED: CertificateShown = {
  ...{ name: "tm-643b78fcd02b", hosts: [], authority: "8f3a01bc".repeat(8) },
  ...{ issued_ms: NOW_MS - 60_000, until_ms: NOW_MS + 364 * 86_400_000 },
};

/** An authority that was replaced, and what both have issued. */
export const CERTIFICATES: CertificatesShown = {
  now_ms: NOW_MS,
  authorities: [
    {
      ...{ fingerprint: ISSUED.authority, name: `unistream cluster ${NAMES.html}`, believed_until_ms: null },
      ...{ made_ms: NOW_MS - 86_400_000, until_ms: NOW_MS + 3_649 * 86_400_000 },
    },
    {
      ...{ fingerprint: "01bc8f3a".repeat(8), name: "unistream cluster of before" },
      ...{ made_ms: NOW_MS - 40 * 86_400_000, until_ms: NOW_MS + 3_600 * 86_400_000 },
      believed_until_ms: NOW_MS + 29 * 86_400_000,
    },
  ],
  rest: { ...ISSUED, name: "", hosts: ["node-1.example", "10.0.0.7"], until_ms: NOW_MS + 29 * 86_400_000 },
  rest_renewed_ms: NOW_MS + 14 * 86_400_000,
  encrypts_workers: true,
  processes: [
    ISSUED,
    { ...ISSUED, name: "of before", authority: "01bc8f3a".repeat(8) },
    { ...ISSUED, name: "ends soon", until_ms: NOW_MS + 1_000 },
    { ...ISSUED, name: "has ended", until_ms: NOW_MS - 1_000 },
    ...Object.values(NAMES).map((name) => ({ ...ISSUED, name })),
  ],
  left_out: 0,
};

export const DISKS: readonly DiskShown[] = [
  { what: "checkpoints", folder: "/data/checkpoints", free_bytes: 1e9, total_bytes: 1e11 },
  { what: "savepoints", folder: "s3://bucket/savepoints", free_bytes: null, total_bytes: null },
  { what: "jobs", folder: "/ha/jobs", free_bytes: 7e9, total_bytes: 1e11 },
  { what: "master", folder: "/home/u", free_bytes: 5e10, total_bytes: 1e11 },
];

const DEED: AuditEntry = {
  ...{ atMs: NOW_MS - 60_000, token: "3f9c0d12ab45", name: "nightly", client: "10.0.0.7" },
  ...{ method: "PATCH", path: `/jobs/${JOB}`, status: 202 },
};

/** With each kind of outcome, what has no words, times that are none, and names that nobody expects. */
export const DEEDS: readonly AuditEntry[] = [
  DEED,
  { ...DEED, method: "POST", path: "/unistream/tokens", status: 201 },
  { ...DEED, method: "DELETE", path: "/unistream/tokens/night%20ly", status: 403 },
  { ...DEED, method: "POST", path: "/unistream/jobs", status: 0 },
  { ...DEED, method: "POST", path: `/jobs/${JOB}/savepoints`, status: 503 },
  { ...DEED, method: "BREW", path: "/coffee/%E0%A4%A", status: 418, token: "", name: "anybody" },
  { ...DEED, atMs: 1e300 },
  ...Object.values(NAMES).flatMap((name) => [
    { ...DEED, name, client: name },
    { ...DEED, method: "DELETE", path: `/unistream/kept-jobs/${encodeURIComponent(name)}` },
    { ...DEED, path: `/${name}` },
  ]),
];

const METRICS: TaskMetrics = {
  records_in: 1_000,
  records_out: 900,
  busy_ms: 100,
  backpressured_ms: 0,
  idle_ms: 0,
  busy_per_s: 400,
  backpressured_per_s: 20,
  idle_per_s: 580,
  records_in_per_s: null,
  watermark: NOW_MS - 5_000,
  in_queue_length: 0,
  out_queue_length: 0,
  in_pool_used: 0,
  in_pool_size: 0,
  out_pool_used: 0,
  out_pool_size: 0,
  user: {},
};

const CHECKPOINT: CheckpointInfo = {
  checkpoint_id: 7,
  kind: "checkpoint",
  state: "completed",
  triggered_ms: NOW_MS - 4_000,
  duration_ms: 120,
  state_bytes: 10_000,
  path: "file:///checkpoints/chk-7",
  reason: null,
};

export function jobInList(name: string, state: JobInList["summary"]["state"], id = JOB): JobInList {
  const ended = ["FINISHED", "FAILED", "CANCELED", "SUSPENDED"].includes(state);
  return {
    summary: {
      job: id,
      name,
      state,
      submitted_ms: NOW_MS - 3_600_000,
      ended_ms: ended ? NOW_MS - 60_000 : null,
      restarts: state === "FAILED" ? 3 : 0,
      tasks: {},
      job_type: "STREAMING",
      scheduler: "Default",
      cluster: "c",
      writes: {},
      failure: state === "FAILED" ? `ValueError: ${NAMES.html}` : null,
    },
    figures: ended
      ? null
      : {
          rows_read: 10_000,
          rows_committed: 9_000,
          behind: 12,
          watermark_ms: NOW_MS - 5_000,
          compiling: false,
          busiest: 0.4,
          most_held_back: 0.1,
          checkpoint: CHECKPOINT,
          failed_since: 1,
          writes: [],
          reads: [],
          failure: state === "RUNNING" ? null : `ValueError: ${NAMES.html}`,
          vertices: [{ id: "v0", name }],
          silent: state === "RUNNING" ? [] : [{ name, seconds: 65, subtasks: 1, of: 4 }],
        },
  };
}

export function overview(jobs: JobInList[], notes: string[] = []): Overview {
  return {
    now_ms: NOW_MS,
    cluster: "c",
    version: "0.0.0",
    workers: 2,
    slots: 8,
    free_slots: 3,
    jobs,
    notes,
    dagster_url: null,
  };
}

export function subtask(vertex: string, index: number, metrics: Partial<TaskMetrics> = {}): SubtaskInfo {
  return {
    vertex,
    vertex_name: vertex.replace("v", "vertex "),
    index,
    attempt: 0,
    state: "RUNNING",
    task_manager: "tm-1",
    metrics: { ...METRICS, ...metrics },
    past: [],
    source: null,
  };
}

export function job(subtasks: SubtaskInfo[], more: Partial<JobInfo> = {}): JobInfo {
  return {
    job: JOB,
    name: NAMES.plain,
    lineage: "l",
    notes: [],
    state: "RUNNING",
    target: "local",
    submitted_ms: NOW_MS - 3_600_000,
    job_type: "STREAMING",
    engine: "",
    engine_page: null,
    restarts_at_ms: null,
    stages: [],
    ended_ms: null,
    state_times: {},
    restarts: 0,
    checkpoints_completed: 7,
    checkpoints_failed: 0,
    latest_checkpoint: CHECKPOINT.path,
    savepoint: null,
    resumes_from: null,
    checkpoints: [CHECKPOINT],
    exceptions: [],
    subtasks,
    sinks: {},
    metrics: {},
    late_rows: {},
    out_of_order_rows: {},
    dead_letters: {},
    skipped_rows: {},
    vertices: [],
    task_managers: [],
    failure: null,
    cluster: "c",
    digest: "",
    given: {},
    writes: {},
    reads: {},
    plain_sinks: [],
    incomplete: "",
    ...more,
  };
}

export function plan(vertices: number, name: string = NAMES.plain): Plan {
  return {
    name,
    type: "STREAMING",
    nodes: Array.from({ length: vertices }, (_, index) => ({
      id: `v${index}`,
      description: `vertex ${index}`,
      operator: "",
      operator_strategy: "",
      optimizer_properties: {},
      parallelism: 1,
      inputs:
        index === 0 ? [] : [{ id: `v${index - 1}`, num: 0, ship_strategy: "HASH", exchange: "pipelined" }],
    })),
  };
}

export function chains(names: readonly string[], parallelism: number): Vertices {
  return {
    vertices: names.map((name, index) => ({
      id: `v${index}`,
      name,
      parallelism,
      max_parallelism: 128,
      slot_sharing_group: "default",
      region: 0,
      offloaded: false,
      operators: [
        {
          uid: name,
          name,
          has_own_uid: true,
          stateful: true,
          declared_at: "/home/me/pipelines/flights.py:12",
          writes: [],
          reads: [],
        },
      ],
      inputs: [],
    })),
  };
}

/** A job of so many vertices and subtasks of each. */
export function wide(vertices: number, parallelism: number, more: Partial<JobInfo> = {}): JobInfo {
  const found = Array.from({ length: vertices * parallelism }, (_, index) =>
    subtask(`v${index % vertices}`, Math.floor(index / vertices), { records_in: index }),
  );
  return job(found, more);
}

const STATES: readonly ProcedureState[] = ["RUNS", "INTERRUPTED", "GIVEN_UP", "DONE"];

/** In each state, and one that has not been heard of for an hour; with names that nobody expects. */
export const PROCEDURES: readonly Procedure[] = [...STATES, "RUNS" as const].map((state, index) => ({
  report: {
    id: `${index}`,
    kind: index % 2 === 0 ? "backfill" : "upgrade",
    job_name: Object.values(NAMES)[index] ?? "",
    job: index === 0 ? null : JOB,
    subject: `a day of ${NAMES.html}`,
    steps: ["stop the job with a savepoint", "compute the range again", "replace it in one transaction"],
    done: state === "DONE" ? 3 : 1,
    state,
    text: state === "RUNS" ? "" : NAMES.html,
    goes_on: state === "RUNS" || state === "INTERRUPTED" ? `unistream backfill ${NAMES.long}` : "",
  },
  begun_ms: NOW_MS - 3_700_000,
  reported_ms: index === STATES.length ? NOW_MS - 3_600_000 : NOW_MS - 2_000,
}));

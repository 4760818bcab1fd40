import type { AuditEntry } from "../api/schema";
import type { Tone } from "./states";

/** What somebody has asked for. `job`: on whose page there is more. `what`: its name, if the path has one. */
export interface Deed {
  readonly words: string;
  readonly job: string | null;
  readonly what: string | null;
}

interface Rule {
  readonly method: string;
  readonly path: RegExp;
  readonly words: string;
  /** What the name in the path is of. */
  readonly names: "job" | "other" | null;
}

const rule = (method: string, path: string, words: string, names: Rule["names"]): Rule => ({
  method,
  path: new RegExp(`^(?:/v1)?${path.replaceAll("ID", "([^/]+)")}$`),
  words,
  names,
});

const RULES: readonly Rule[] = [
  rule("POST", "/unistream/jobs", "submitted a job", null),
  rule("POST", "/unistream/plans", "planned a pipeline", null),
  rule("POST", "/unistream/plans/ID/start", "started a pipeline that was planned", null),
  rule("PATCH", "/jobs/ID", "cancelled the job", "job"),
  rule("POST", "/jobs/ID/stop", "stopped the job with a savepoint", "job"),
  rule("POST", "/jobs/ID/savepoints", "took a savepoint of the job", "job"),
  rule("POST", "/jobs/ID/checkpoints", "took a checkpoint of the job", "job"),
  rule("PUT", "/jobs/ID/resource-requirements", "rescaled the job", "job"),
  rule("POST", "/unistream/jobs/ID/rescale", "rescaled the job", "job"),
  rule("POST", "/unistream/jobs/ID/dead-letters/replays", "replayed dead letters of the job", "job"),
  rule("POST", "/unistream/savepoints/query", "looked at rows of a snapshot by SQL", null),
  rule("PUT", "/unistream/kept-jobs/ID", "kept what was submitted, to start it again", "other"),
  rule("DELETE", "/unistream/kept-jobs/ID", "dropped what was kept of a job", "other"),
  rule("POST", "/unistream/kept-jobs/ID/check", "checked changes of a kept job", "other"),
  rule("POST", "/unistream/kept-jobs/ID/start", "started a kept job again", "other"),
  rule("DELETE", "/cluster", "ended the cluster", null),
  rule("PUT", "/unistream/cluster/refusal", "changed whether the cluster takes jobs", null),
  rule("POST", "/unistream/tokens", "made a token", null),
  rule("DELETE", "/unistream/tokens/ID", "revoked a token", "other"),
  rule("POST", "/unistream/workers", "let a host join", null),
  rule("POST", "/unistream/workers/ID/drain", "drained a worker", "other"),
  rule("POST", "/unistream/certificates/rotation", "gave the cluster another authority", null),
  rule("DELETE", "/unistream/identity", "signed out", null),
  rule("POST", "/unistream/login-codes", "made a link for a browser", null),
  rule("PUT", "/unistream/procedures", "reported a backfill or an upgrade", null),
  rule("POST", "/unistream/run-links/attach", "linked a run of Dagster with a job", null),
  rule("POST", "/unistream/run-links/release", "ended the link of a run with a job", null),
  rule("POST", "/unistream/run-links/take-over", "took over the link of a run with a job", null),
];

/** In words where they are known; else method and path have to do. */
export function deedOf({ method, path }: Pick<AuditEntry, "method" | "path">): Deed | null {
  for (const one of RULES) {
    const found = one.method === method ? one.path.exec(path) : null;
    if (found === null) continue;
    const name = found[1] === undefined ? null : decoded(found[1]);
    return {
      words: one.words,
      job: one.names === "job" ? name : null,
      what: one.names === "other" ? name : null,
    };
  }
  return null;
}

/** A path may have anything in it. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch (error) {
    if (error instanceof URIError) return text;
    throw error;
  }
}

/** What became of a request. */
export interface Outcome {
  readonly kind: "done" | "refused" | "failed";
  readonly tone: Tone;
  readonly words: string;
}

export function outcomeOf(status: number): Outcome {
  if (status >= 200 && status < 400) return { kind: "done", tone: "good", words: doneWords(status) };
  if (status >= 400 && status < 500) return { kind: "refused", tone: "warn", words: refusedWords(status) };
  return { kind: "failed", tone: "bad", words: failedWords(status) };
}

function doneWords(status: number): string {
  if (status === 201) return "made";
  return status === 202 ? "accepted" : "done";
}

function refusedWords(status: number): string {
  switch (status) {
    case 400:
      return "refused: it was not valid";
    case 403:
      return "refused: the scope is too small";
    case 404:
      return "refused: there is no such thing";
    case 409:
      return "refused: not in that state";
    case 413:
      return "refused: it was too large";
    default:
      return "refused";
  }
}

function failedWords(status: number): string {
  if (status === 0) return "no answer: who asked had gone";
  return status === 503 ? "not now: something it needs was away" : "failed";
}

export const OUTCOMES = ["all", "done", "refused", "failed"] as const;
export type Chosen = (typeof OUTCOMES)[number];

/** How many of the newest entries are looked at. */
export const DEPTHS = [100, 1_000, 10_000] as const;
export type Depth = (typeof DEPTHS)[number];

/** Which entries the page lists, as the URL says it. */
export interface AuditView {
  readonly q: string;
  readonly outcome: Chosen;
  readonly newest: Depth;
}

export function auditViewOf(search: { readonly [name in keyof AuditView]?: unknown }): AuditView {
  return {
    q: typeof search.q === "string" || typeof search.q === "number" ? String(search.q) : "",
    outcome: OUTCOMES.find((one) => one === search.outcome) ?? "all",
    newest: DEPTHS.find((one) => one === search.newest) ?? DEPTHS[0],
  };
}

/** Those with such an outcome that have each of the words somewhere. */
export function chosenEntries(
  entries: readonly AuditEntry[],
  { q, outcome }: Pick<AuditView, "q" | "outcome">,
): AuditEntry[] {
  const wanted = q.toLowerCase().split(/\s+/).filter(Boolean);
  return entries.filter((entry) => {
    if (outcome !== "all" && outcomeOf(entry.status).kind !== outcome) return false;
    const text = textOf(entry).toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
}

function textOf(entry: AuditEntry): string {
  const { name, token, method, path, client, status } = entry;
  return [name, token, method, path, client, status, deedOf(entry)?.words, outcomeOf(status).words].join(" ");
}

import type { JobInList } from "../api/schema";
import { isOver } from "./states";

/** A job that writes what another one reads, or the other way round. `behind`: records that it has not read yet. */
export interface FeedingJob {
  readonly kind: "job";
  readonly id: string;
  readonly reads: readonly string[];
  readonly name: string;
  readonly state: JobInList["summary"]["state"];
  readonly behind: number | null;
  readonly heldBack: number;
}

/** A topic, table or folder between two jobs; its id is its URI. */
export interface FeedingPlace {
  readonly kind: "place";
  readonly id: string;
  readonly reads: readonly string[];
  readonly name: string;
}

export type Feeding = FeedingJob | FeedingPlace;

/**
 * Running jobs that feed each other, with what they share; empty if none does. Of what a running job reads and no
 * running one writes, the last job that wrote it is there too, as it has ended: nothing comes any more.
 */
export function feedsOf(jobs: readonly JobInList[]): readonly Feeding[] {
  const newest = [...jobs].sort((a, b) => b.summary.submitted_ms - a.summary.submitted_ms);
  const running = newest.filter(({ summary }) => !isOver(summary.state));
  const read = new Set(running.flatMap(({ figures }) => figures?.reads ?? []));
  const writers = new Map([...read].map((uri) => [uri, writersOf(uri, running, newest)]));
  const shared = new Set([...read].filter((uri) => (writers.get(uri) ?? []).length > 0));
  const places = [...shared].sort().map((uri): FeedingPlace => ({
    kind: "place",
    id: uri,
    reads: (writers.get(uri) ?? []).map(({ summary }) => summary.job),
    name: placeName(uri),
  }));
  const writing = new Set(places.flatMap(({ reads }) => reads));
  const joined = newest
    .map(({ summary, figures }): FeedingJob => ({
      kind: "job",
      id: summary.job,
      reads: isOver(summary.state) ? [] : (figures?.reads ?? []).filter((uri) => shared.has(uri)),
      name: summary.name,
      state: summary.state,
      behind: figures?.behind ?? null,
      heldBack: figures?.most_held_back ?? 0,
    }))
    .filter(({ id, reads }) => reads.length > 0 || writing.has(id));
  return [...joined.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0)), ...places];
}

function writersOf(
  uri: string,
  running: readonly JobInList[],
  newest: readonly JobInList[],
): readonly JobInList[] {
  const now = running.filter((job) => writesOf(job).includes(uri));
  if (now.length > 0) return now;
  const last = newest.find((job) => isOver(job.summary.state) && writesOf(job).includes(uri));
  return last === undefined ? [] : [last];
}

function writesOf({ summary, figures }: JobInList): readonly string[] {
  return figures?.writes ?? Object.values(summary.writes).flat();
}

/**
 * The last part of a URI, as people call it.
 *
 * `kafka://broker:9092/orders` is "orders"; a URI that ends at its host is itself.
 */
export function placeName(uri: string): string {
  const path = uri.replace(/^[^:]*:\/\/[^/]*/, "").replace(/\/+$/, "");
  return path.slice(path.lastIndexOf("/") + 1) || uri;
}

/** What the picture says, in words: who writes it, and who reads it. */
export interface FeedLine {
  readonly place: FeedingPlace;
  readonly writers: readonly FeedingJob[];
  readonly readers: readonly FeedingJob[];
}

export function linesOf(feeds: readonly Feeding[]): readonly FeedLine[] {
  const jobs = feeds.filter((one) => one.kind === "job");
  return feeds
    .filter((one) => one.kind === "place")
    .map((place) => ({
      place,
      writers: jobs.filter(({ id }) => place.reads.includes(id)),
      readers: jobs.filter(({ reads }) => reads.includes(place.id)),
    }));
}

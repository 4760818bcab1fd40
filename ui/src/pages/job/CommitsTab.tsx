import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";

import { commitsQuery, jobQuery } from "../../api/queries";
import type { CommitRecord, JobCommits, SinkCommits } from "../../api/schema";
import { UNKNOWN, bytes, count } from "../../format/numbers";
import { duration, since } from "../../format/times";
import { momentOf, notYet, waitingOf } from "../../model/commits";
import { Answered } from "../../parts/Answered";
import { Copyable } from "../../parts/Copyable";
import { Notice } from "../../parts/Notice";
import { Ago, Time } from "../../parts/Time";
import { Scrolls } from "../../parts/Scrolls";

/** What each sink has made visible, what waits for it and since when. */
export function CommitsTab() {
  const { job } = useParams({ from: "/jobs/$job" });
  const query = useQuery(commitsQuery(job));
  const runs = useQuery(jobQuery(job)).data?.ended_ms === null;
  return <Answered query={query}>{(found) => <Commits found={found} runs={runs} />}</Answered>;
}

function Commits({ found, runs }: { found: JobCommits; runs: boolean }) {
  const { sinks, commits, why_unknown, now_ms } = found;
  const sentence = notYet(found, runs);
  if (sinks.length === 0) {
    return (
      <p className="empty">No sink of this job has committed anything, and none says where it writes.</p>
    );
  }
  return (
    <>
      {sentence !== null && <p className="quiet">{sentence}</p>}
      {why_unknown !== null && (
        <Notice tone="warn">{`What waits for its commit is not known: ${why_unknown}`}</Notice>
      )}
      <Scrolls label="Sinks">
        <table className="names">
          <thead>
            <tr>
              <th scope="col">Sink</th>
              <th scope="col">Writes</th>
              <th scope="col" className="number">
                Rows committed
              </th>
              <th scope="col" className="number">
                Commits
              </th>
              <th scope="col">Newest commit</th>
              <th scope="col" className="number">
                Table version
              </th>
              <th scope="col">Not committed yet</th>
            </tr>
          </thead>
          <tbody>
            {sinks.map((sink) => (
              <Sink key={sink.uid} sink={sink} nowMs={now_ms} />
            ))}
          </tbody>
        </table>
      </Scrolls>
      <h2>The newest commits</h2>
      <CommitsTable commits={commits} />
    </>
  );
}

function Sink({ sink, nowMs }: { sink: SinkCommits; nowMs: number }) {
  const { uid, writes, info, newest } = sink;
  return (
    <tr>
      <th scope="row">
        <bdi>{uid}</bdi>
      </th>
      <td>
        {writes.length === 0 && <span className="quiet">{UNKNOWN}</span>}
        {writes.map((uri) => (
          <div key={uri} className="nowrap">
            <Copyable text={uri} />
          </div>
        ))}
      </td>
      <td className="number">{count(info?.rows)}</td>
      <td className="number">{count(info?.commits)}</td>
      <td>
        {info?.checkpoint_id == null ? UNKNOWN : `checkpoint ${info.checkpoint_id}`}
        {newest !== null && (
          <div className="quiet">
            <Ago ms={newest.at_ms} nowMs={nowMs} />, {count(newest.rows)} rows
          </div>
        )}
      </td>
      <td className="number">
        {count(info?.table_version)}
        {info?.table_rows != null && <div className="quiet">{count(info.table_rows)} rows in it</div>}
      </td>
      <td>
        <NotYet sink={sink} nowMs={nowMs} />
      </td>
    </tr>
  );
}

function NotYet({ sink, nowMs }: { sink: SinkCommits; nowMs: number }) {
  const waiting = waitingOf(sink);
  switch (waiting.kind) {
    case "unknown":
      return UNKNOWN;
    case "never":
      return <span className="quiet">commits nothing: it takes rows as they come, at least once</span>;
    case "nothing":
      return <span className="quiet">nothing is staged</span>;
    case "waits":
      return (
        <>
          {count(waiting.committables)} committables ({bytes(waiting.bytes)})
          {waiting.sinceMs !== null && (
            <div className="why">for {duration(since(waiting.sinceMs, nowMs))}</div>
          )}
        </>
      );
  }
}

function CommitsTable({ commits }: { commits: readonly CommitRecord[] }) {
  const { job } = useParams({ from: "/jobs/$job" });
  if (commits.length === 0) return <p className="empty">None is recorded.</p>;
  return (
    <Scrolls label="Commits">
      <table>
        <thead>
          <tr>
            <th scope="col">Time</th>
            <th scope="col">Sink</th>
            <th scope="col" className="number">
              Checkpoint
            </th>
            <th scope="col" className="number">
              Rows
            </th>
            <th scope="col" className="number">
              Table version
            </th>
            <th scope="col">Complete up to</th>
          </tr>
        </thead>
        <tbody>
          {commits.map((one) => (
            <tr key={`${one.sink_uid} ${one.checkpoint_id}`}>
              <td className="nowrap">
                <Time ms={one.at_ms} />
              </td>
              <td>
                <bdi>{one.sink_uid}</bdi>
              </td>
              <td className="number">
                <Link to="/jobs/$job/checkpoints" params={{ job }} search={{ id: one.checkpoint_id }}>
                  {one.checkpoint_id}
                </Link>
              </td>
              <td className="number">{count(one.rows)}</td>
              <td className="number">{count(one.table_version)}</td>
              <td className="nowrap">
                <Watermark ms={one.watermark_ms} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scrolls>
  );
}

function Watermark({ ms }: { ms: number | null }) {
  const moment = momentOf(ms);
  return moment === "end" ? "end of input" : <Time ms={moment} />;
}

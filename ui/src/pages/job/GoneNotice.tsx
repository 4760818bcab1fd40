import { Link } from "@tanstack/react-router";

import type { JobInfo } from "../../api/schema";
import { localTime } from "../../format/times";
import { Notice } from "../../parts/Notice";

const REMOVED = "metadata.retention";

/** The cluster does not know a job any more that this page has shown: why, what is left, and where to go on. */
export function GoneNotice({ info, atMs }: { info: JobInfo; atMs: number }) {
  return (
    <Notice tone="warn">
      {info.ended_ms === null ? (
        <>
          <strong>The JobManager does not know this job any more.</strong> It ran when it was last heard of.
          Another JobManager may have taken over that does not have it, or this address leads to another
          cluster now.
        </>
      ) : (
        <>
          <strong>This job was removed from the history.</strong> The cluster keeps the newest jobs that have
          ended, for as long as its options{" "}
          <Link to="/cluster" search={{ q: REMOVED, all: true }}>
            <code>{REMOVED}.*</code>
          </Link>{" "}
          say.
        </>
      )}{" "}
      What stands here is what was last known, at {localTime(atMs)}; it is gone when this page is left or
      loaded again.{" "}
      {info.savepoint === null ? (
        "What it has committed stays in its tables and topics."
      ) : (
        <>
          What it has committed stays in its tables and topics, and its savepoints stay where they are: note
          the directory <code>{info.savepoint}</code> if a job shall go on from there.
        </>
      )}{" "}
      The <Link to="/">overview</Link> lists the jobs that run, the <Link to="/history">history</Link> those
      that have ended and are kept.
    </Notice>
  );
}

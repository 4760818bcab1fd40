import { useQuery } from "@tanstack/react-query";
import { useNavigate, useParams, useSearch } from "@tanstack/react-router";

import { timelineQuery } from "../../api/clusterQueries";
import type { JobTimeline } from "../../api/schema";
import { duration } from "../../format/times";
import { type Range, lanesOf, moved, rangeOf, wholeOf, zoomed } from "../../model/timeline";
import { Answered } from "../../parts/Answered";
import { Time } from "../../parts/Time";
import { TimelinePicture } from "./TimelinePicture";
import { TimelineTable } from "./TimelineTable";
import "./timeline.css";

const CLOSER = 0.5;
const STEP = 0.5;

/** Executions, restarts, rescales, checkpoints, savepoints and commits on one axis of time. */
export function TimelineTab() {
  const { job } = useParams({ from: "/jobs/$job" });
  const query = useQuery(timelineQuery(job));
  return <Answered query={query}>{(timeline) => <Timeline timeline={timeline} />}</Answered>;
}

function Timeline({ timeline }: { timeline: JobTimeline }) {
  const { from, to } = useSearch({ from: "/jobs/$job/timeline" });
  const navigate = useNavigate({ from: "/jobs/$job/timeline" });
  const whole = wholeOf(timeline);
  const range = rangeOf(whole, from ?? null, to ?? null);
  const show = (wanted: Range | null) => {
    const isAll = wanted === null || (wanted.fromMs <= whole.fromMs && wanted.toMs >= whole.toMs);
    void navigate({ search: isAll ? {} : { from: wanted.fromMs, to: wanted.toMs }, replace: true });
  };
  const lanes = lanesOf(timeline);
  const actions = [
    ["Earlier", "ArrowLeft", () => moved(whole, range, -STEP)],
    ["Later", "ArrowRight", () => moved(whole, range, STEP)],
    ["Closer", "+", () => zoomed(whole, range, CLOSER)],
    ["Wider", "-", () => zoomed(whole, range, 1 / CLOSER)],
    ["All", "0", () => null],
  ] as const;
  return (
    <>
      <div className="timeline-bar">
        {actions.map(([text, key, act]) => (
          <button
            key={text}
            type="button"
            title={`Key ${key}, where the picture has the focus`}
            onClick={() => {
              show(act());
            }}
          >
            {text}
          </button>
        ))}
        <span className="quiet">
          <Time ms={range.fromMs} /> to <Time ms={range.toMs} />, {duration(range.toMs - range.fromMs)}
        </span>
      </div>
      {timeline.incomplete && <p className="quiet">What is older than its last 2,000 events is not shown.</p>}
      <TimelinePicture
        lanes={lanes}
        range={range}
        choose={show}
        onKey={(key) => {
          const action = actions.find(([, one]) => one === key);
          if (action !== undefined) show(action[2]());
          return action !== undefined;
        }}
      />
      <TimelineTable lanes={lanes} range={range} />
    </>
  );
}

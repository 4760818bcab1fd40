import { useVirtualizer } from "@tanstack/react-virtual";
import { useRef } from "react";

import type { Picture, StoryRow } from "../../model/story";

const ROW_PX = 26;
const LANES_PX = 720;
const LANE_LEAST_PX = 36;
const LANE_MOST_PX = 120;
const ABOVE = 20;

/** A sequence diagram: a line down for each process, an arrow for each message. Only what is seen is drawn. */
export function StoryPicture({ picture: { lanes, rows } }: { picture: Picture }) {
  const box = useRef<HTMLDivElement>(null);
  // eslint-disable-next-line react-hooks/incompatible-library -- the rows are made anew with each of its changes
  const shown = useVirtualizer({
    count: rows.length,
    getScrollElement: () => box.current,
    estimateSize: () => ROW_PX,
    getItemKey: (index) => rows[index]?.number ?? index,
    overscan: ABOVE,
  });
  if (rows.length === 0) return <p className="empty">No line of the story is like that.</p>;
  const lanePx = Math.max(LANE_LEAST_PX, Math.min(LANE_MOST_PX, LANES_PX / Math.max(1, lanes.length)));
  return (
    <div
      ref={box}
      className="story"
      role="log"
      aria-label="The story, line by line"
      aria-live="off"
      // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls can be reached by keyboard
      tabIndex={0}
    >
      <div className="story-head">
        <span className="story-time">Time</span>
        {lanes.map((name) => (
          <span key={name} className="story-lane" style={{ width: lanePx }} title={name}>
            <bdi>{name}</bdi>
          </span>
        ))}
      </div>
      <div className="story-all" style={{ height: shown.getTotalSize() }}>
        {shown.getVirtualItems().map(({ key, index, start }) => {
          const row = rows[index];
          return (
            row !== undefined && (
              <div key={key} className={`story-row is-${row.kind}`} style={{ top: start }}>
                <span className="story-time">{(row.atMs / 1_000).toFixed(4)} s</span>
                <Lanes row={row} lanes={lanes} lanePx={lanePx} />
                <span className="story-text" title={row.text}>
                  <bdi>{row.text}</bdi>
                </span>
              </div>
            )
          );
        })}
      </div>
    </div>
  );
}

/** The lines down at one moment, and what happens between them. */
function Lanes({ row, lanes, lanePx }: { row: StoryRow; lanes: readonly string[]; lanePx: number }) {
  const at = (lane: number) => (lane + 0.5) * lanePx;
  const middle = ROW_PX / 2;
  const { from, to } = row;
  const [source, target] = [from === null ? null : lanes[from], to === null ? null : lanes[to]];
  return (
    <svg
      width={lanes.length * lanePx}
      height={ROW_PX}
      role="img"
      aria-label={[source, target].filter((name) => name != null).join(" to ") || "nobody"}
    >
      {lanes.map((name, lane) => (
        <line key={name} className="life" x1={at(lane)} x2={at(lane)} y1={0} y2={ROW_PX} />
      ))}
      {from !== null && <circle className="dot" cx={at(from)} cy={middle} r={4} />}
      {from !== null && to !== null && (
        <Arrow from={at(from)} to={at(to)} y={middle} lost={row.kind === "lost"} />
      )}
    </svg>
  );
}

/** A message; one that is lost ends before it arrives, with a cross. */
function Arrow({ from, to, y, lost }: { from: number; to: number; y: number; lost: boolean }) {
  const way = Math.sign(to - from);
  const end = lost ? from + (to - from) * 0.7 : to - way * 2;
  return (
    <>
      <line className="arrow" x1={from} x2={end} y1={y} y2={y} />
      {lost ? (
        <path className="arrow" d={`M${end - 4} ${y - 4}l8 8m0 -8l-8 8`} />
      ) : (
        <path className="arrow" d={`M${end - way * 6} ${y - 4}L${end} ${y}L${end - way * 6} ${y + 4}`} />
      )}
    </>
  );
}

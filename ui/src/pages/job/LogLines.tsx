import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef } from "react";

import type { JobLogLine } from "../../api/schema";
import { count } from "../../format/numbers";
import { isoTime, shortTime, utcTime } from "../../format/times";
import { toneOfLevel } from "../../model/log";

const LINE_PX = 22;
const NEAR_PX = 24;
const ABOVE = 20;

/** Only the lines that are seen are drawn. It stays at the newest one, as long as that is read. */
export function LogLines({ lines, follows }: { lines: readonly JobLogLine[]; follows: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  // eslint-disable-next-line react-hooks/incompatible-library -- the rows are made anew with each of its changes
  const rows = useVirtualizer({
    count: lines.length,
    getScrollElement: () => box.current,
    estimateSize: () => LINE_PX,
    getItemKey: (index) => lines[index]?.seq ?? index,
    overscan: ABOVE,
  });
  const last = lines.at(-1)?.seq;
  useEffect(() => {
    if (follows && atEnd.current) rows.scrollToIndex(lines.length - 1, { align: "end" });
  }, [last, follows, lines.length, rows]);
  return (
    <div
      ref={box}
      className="log"
      role="log"
      aria-label="Log of the job"
      // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls can be reached by keyboard
      tabIndex={0}
      onScroll={({ currentTarget: { scrollHeight, scrollTop, clientHeight } }) => {
        atEnd.current = scrollHeight - scrollTop - clientHeight < NEAR_PX;
      }}
    >
      <div className="log-all" style={{ height: rows.getTotalSize() }}>
        {rows.getVirtualItems().map(({ key, index, start }) => {
          const line = lines[index];
          return (
            line !== undefined && (
              <div
                key={key}
                ref={rows.measureElement}
                data-index={index}
                className="log-line"
                style={{ transform: `translateY(${start}px)` }}
              >
                <Line line={line} />
              </div>
            )
          );
        })}
      </div>
    </div>
  );
}

function Line({ line }: { line: JobLogLine }) {
  return (
    <>
      {line.dropped > 0 && (
        <div className="quiet">… {count(line.dropped)} lines of this task were dropped: it logs too much</div>
      )}
      <time dateTime={isoTime(line.at_ms) ?? undefined} title={utcTime(line.at_ms)}>
        {shortTime(line.at_ms, 0)}
      </time>{" "}
      <span className={`level tone-${toneOfLevel(line.level)}`}>{line.level}</span>{" "}
      <span className="quiet">
        <bdi>{line.task}</bdi> <bdi>{line.logger}</bdi>
      </span>{" "}
      <bdi className="message">{line.message}</bdi>
    </>
  );
}

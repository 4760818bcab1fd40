import { useState } from "react";

import { shortTime, utcTime } from "../../format/times";
import { type Lane, type Range, strokesOf, ticksOf } from "../../model/timeline";

const TICKS = 5;
const LEAST = 0.003; // of the width: some three pixels
const DRAGGED_LEAST = 0.01;

interface Props {
  readonly lanes: readonly Lane[];
  readonly range: Range;
  readonly choose: (range: Range) => void;
  readonly onKey: (key: string) => boolean;
}

/** The lanes above each other. Dragging over them looks closer; the table below says the same in words. */
export function TimelinePicture({ lanes, range, choose, onKey }: Props) {
  const [drag, setDrag] = useState<{ from: number; to: number } | null>(null);
  const length = range.toMs - range.fromMs;
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-element-interactions -- a picture that can be zoomed
    <div
      className="timeline"
      role="img"
      aria-label="The life of the job; the table below says the same. Keys: arrows, plus, minus, 0"
      // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- its keys
      tabIndex={0}
      onKeyDown={(event) => {
        if (!event.ctrlKey && !event.metaKey && !event.altKey && onKey(event.key)) event.preventDefault();
      }}
    >
      {lanes.map((lane) => (
        <div key={lane.name} className="lane">
          <span className="lane-name" title={lane.name}>
            <bdi>{lane.name}</bdi>
          </span>
          <svg
            className="lane-strokes"
            viewBox="0 0 1 1"
            preserveAspectRatio="none"
            aria-hidden="true"
            onPointerDown={(event) => {
              event.currentTarget.setPointerCapture(event.pointerId);
              setDrag({ from: partAt(event), to: partAt(event) });
            }}
            onPointerMove={(event) => {
              if (drag !== null) setDrag({ ...drag, to: partAt(event) });
            }}
            onPointerUp={() => {
              if (drag !== null && Math.abs(drag.to - drag.from) > DRAGGED_LEAST) {
                const [left, right] = [Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)];
                choose({
                  fromMs: Math.round(range.fromMs + left * length),
                  toMs: Math.round(range.fromMs + right * length),
                });
              }
              setDrag(null);
            }}
            onPointerCancel={() => {
              setDrag(null);
            }}
          >
            {drag !== null && (
              <rect
                className="drag"
                x={Math.min(drag.from, drag.to)}
                y={0}
                width={Math.abs(drag.to - drag.from)}
                height={1}
              />
            )}
            {strokesOf(lane, range, LEAST).map(({ left, width, tone, text }) => (
              <rect
                key={`${left} ${text}`}
                className={`stroke-${tone}`}
                x={left}
                y={0.15}
                width={width}
                height={0.7}
              >
                <title>{text}</title>
              </rect>
            ))}
          </svg>
        </div>
      ))}
      <div className="lane axis" aria-hidden="true">
        <span className="lane-name" />
        <div className="ticks">
          {ticksOf(range, TICKS).map((ms) => (
            <span
              key={ms}
              className="tick"
              style={{ left: `${((ms - range.fromMs) / length) * 100}%` }}
              title={utcTime(ms)}
            >
              {shortTime(ms, length)}
            </span>
          ))}
        </div>
      </div>
    </div>
  );
}

/** Where the pointer is, in parts of the width. */
function partAt(event: React.PointerEvent): number {
  const { left, width } = event.currentTarget.getBoundingClientRect();
  return Math.min(1, Math.max(0, (event.clientX - left) / width));
}

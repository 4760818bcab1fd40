import { useEffect, useRef } from "react";

import { duration } from "../../format/times";
import type { Bar } from "../../model/checkpointStrip";

interface Props {
  readonly bars: readonly Bar[];
  readonly chosen: number | null;
  readonly other: number | null;
  readonly choose: (id: number) => void;
}

const NEAR_PX = 80; // three bars

/** The last sixty, oldest first: how long each took, and how it ended. */
export function CheckpointStrip({ bars, chosen, other, choose }: Props) {
  const list = useRef<HTMLOListElement>(null);
  const isNew = useRef(true);
  const newest = bars.at(-1)?.id;
  useEffect(() => {
    // In a narrow window not all have room: the newest are in sight, unless somebody looks at older ones.
    const strip = list.current;
    if (strip === null) return;
    const hiddenPx = strip.scrollWidth - strip.clientWidth - strip.scrollLeft;
    if (isNew.current || hiddenPx < NEAR_PX) strip.scrollLeft = strip.scrollWidth;
    isNew.current = false;
  }, [newest]);
  const slowest = Math.max(...bars.map(({ durationMs }) => durationMs ?? 0), 1);
  return (
    <ol ref={list} className="strip" aria-label={`The last ${bars.length} checkpoints`}>
      {bars.map(({ id, status, kind, durationMs }) => {
        const text = `${id} · ${status} · ${duration(durationMs)}`;
        return (
          <li key={id}>
            <button
              type="button"
              className={`bar-${status.replace(" ", "-")}${id === other ? " is-other" : ""}`}
              aria-pressed={id === chosen}
              aria-label={`${kind.toLowerCase().replaceAll("_", " ")} ${text.replaceAll(" · ", ", ")}`}
              title={text}
              onClick={() => {
                choose(id);
              }}
            >
              <span style={{ height: `${Math.max(6, ((durationMs ?? 0) / slowest) * 100)}%` }} />
            </button>
          </li>
        );
      })}
    </ol>
  );
}

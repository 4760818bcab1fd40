import { useState } from "react";

import { type RestorePoint, type Subject, pointsOf } from "../../../model/actions";
import type { Wanted } from "../../../model/operations";
import { Notice } from "../../../parts/Notice";
import { Time } from "../../../parts/Time";

interface Props {
  readonly subject: Subject;
  readonly change: (wanted: Wanted | null) => void;
}

/** Which of the restore points. */
export function StartFields({ subject, change }: Props) {
  const points = pointsOf(subject);
  const [path, setPath] = useState<string | null>(null);
  const chosen = points.find((point) => point.path === path);
  return (
    <fieldset className="points">
      <legend>From</legend>
      {points.map((point) => (
        <Point
          key={point.path}
          point={point}
          isChosen={point.path === path}
          choose={() => {
            setPath(point.path);
            change({ savepoint: point.path });
          }}
        />
      ))}
      {chosen?.isOlder === true && (
        <Notice tone="warn">
          The job went on after this point. A sink that has committed rows since then refuses the new job, or
          has them twice, as its option on_rewind says.
        </Notice>
      )}
    </fieldset>
  );
}

function Point({ point, isChosen, choose }: { point: RestorePoint; isChosen: boolean; choose: () => void }) {
  return (
    <label className="point">
      <input type="radio" name="point" checked={isChosen} onChange={choose} />
      <span>
        {point.what} <Time ms={point.atMs} />
        <code>{point.path}</code>
      </span>
    </label>
  );
}

import { useQuery } from "@tanstack/react-query";
import { useNavigate, useParams, useSearch } from "@tanstack/react-router";

import { checkpointsQuery, jobQuery } from "../../api/queries";
import type { CheckpointsInfo } from "../../api/schema";
import { count } from "../../format/numbers";
import { type Bar, stripOf } from "../../model/checkpointStrip";
import { Answered } from "../../parts/Answered";
import { CheckpointCompared } from "./CheckpointCompared";
import { CheckpointDetails } from "./CheckpointDetails";
import { CheckpointStrip } from "./CheckpointStrip";

/** The last sixty as a strip, and of the chosen one which subtask was slow, and in which phase. */
export function CheckpointsTab() {
  const { job } = useParams({ from: "/jobs/$job" });
  const query = useQuery(checkpointsQuery(job));
  const { data } = useQuery(jobQuery(job));
  return (
    <Answered query={query}>
      {(info) => <Checkpoints info={info} bars={stripOf(info.latest, data?.checkpoints ?? [])} />}
    </Answered>
  );
}

function Checkpoints({ info, bars }: { info: CheckpointsInfo; bars: readonly Bar[] }) {
  const { id, other } = useSearch({ from: "/jobs/$job/checkpoints" });
  const navigate = useNavigate({ from: "/jobs/$job/checkpoints" });
  if (bars.length === 0) {
    return <p className="empty">There is no checkpoint yet. A job without an interval takes none.</p>;
  }
  const chosen = bars.find((bar) => bar.id === id) ?? bars.at(-1);
  const second = bars.find((bar) => bar.id === other && bar !== chosen);
  return (
    <>
      <p>
        {count(info.completed)} complete, {count(info.failed)} failed, {count(info.in_progress)} in progress.
      </p>
      <CheckpointStrip
        bars={bars}
        chosen={chosen?.id ?? null}
        other={second?.id ?? null}
        choose={(one) => void navigate({ search: (before) => ({ ...before, id: one }), replace: true })}
      />
      <div className="title">
        {id !== undefined && (
          <button type="button" onClick={() => void navigate({ search: {}, replace: true })}>
            Follow the newest
          </button>
        )}
        {chosen?.figures != null && (
          <CompareWith
            bars={bars.filter((bar) => bar.figures !== null && bar !== chosen)}
            other={second?.id ?? null}
            choose={(one) =>
              void navigate({
                search: one === null ? { id: chosen.id } : { id: chosen.id, other: one },
                replace: true,
              })
            }
          />
        )}
      </div>
      {chosen?.figures != null && second?.figures != null && (
        <CheckpointCompared one={chosen.figures} other={second.figures} />
      )}
      {chosen !== undefined && <CheckpointDetails bar={chosen} />}
    </>
  );
}

interface CompareProps {
  readonly bars: readonly Bar[];
  readonly other: number | null;
  readonly choose: (id: number | null) => void;
}

/** Those of which the figures of each subtask are kept. */
function CompareWith({ bars, other, choose }: CompareProps) {
  if (bars.length === 0) return null;
  return (
    <label>
      Compare with{" "}
      <select
        value={other ?? ""}
        onChange={({ target }) => {
          choose(target.value === "" ? null : Number(target.value));
        }}
      >
        <option value="">no other</option>
        {[...bars].reverse().map(({ id, status }) => (
          <option key={id} value={id}>
            {id}, {status}
          </option>
        ))}
      </select>
    </label>
  );
}

import { useHoldsUntilMs, useOverview } from "../../api/queries";
import { percent } from "../../format/numbers";
import { measured, trendSentence } from "../../model/behind";
import type { Bottleneck } from "../../model/vertices";
import { Notice } from "../../parts/Notice";
import { useSamples } from "../../parts/samples";

const SHOWN = 3;

interface Props {
  readonly found: readonly Bottleneck[];
  readonly job: string;
}

/** What the rows wait for, the next ones after it, and whether the job falls further behind. */
export function Bottlenecks({ found, job }: Props) {
  const { data } = useOverview();
  const line = data?.jobs.find(({ summary }) => summary.job === job);
  const now = new Map([["behind", line?.figures?.behind ?? null]]);
  const kept = useSamples(now, useHoldsUntilMs("overview", data?.now_ms ?? 0), measured);
  const trend = trendSentence(kept.get("behind") ?? []);
  const [first, ...next] = found;
  if (first === undefined) return trend === null ? null : <p className="quiet">{trend}</p>;
  return (
    <Notice tone="busy">
      {first.sentence}
      {trend !== null && <> {trend}</>}
      {next.length > 0 && (
        <>
          {" "}
          Then{" "}
          {next
            .slice(0, SHOWN - 1)
            .map(({ vertex, kind }) => `${vertex.name} (${kind}, busy ${percent(vertex.busy)})`)
            .join(", ")}
          .
        </>
      )}
    </Notice>
  );
}

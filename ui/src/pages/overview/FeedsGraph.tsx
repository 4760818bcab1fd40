import { compact } from "../../format/numbers";
import type { Feeding } from "../../model/feeds";
import { toneOfJob } from "../../model/states";
import { FlowGraph, type FlowNode } from "../../parts/FlowGraph";

interface Props {
  readonly feeds: readonly Feeding[];
  /** Jobs that read rows now. */
  readonly moving: ReadonlySet<string>;
  readonly open: (job: string) => void;
}

/** Jobs, and the topics and tables between them, as rows flow. */
export function FeedsGraph({ feeds, moving, open }: Props) {
  const jobs = new Set(feeds.filter(({ kind }) => kind === "job").map(({ id }) => id));
  return (
    <FlowGraph
      label="Jobs that feed each other; the list below says the same"
      nodes={feeds.map(nodeOf)}
      edge={(source, { id }) => ({ moves: moving.has(jobs.has(id) ? id : source) })}
      open={(id) => {
        if (jobs.has(id)) open(id);
      }}
    />
  );
}

function nodeOf(feeding: Feeding): FlowNode {
  const { id, reads, name } = feeding;
  switch (feeding.kind) {
    case "place":
      return { id, reads, name, small: id, title: id, look: "is-place" };
    case "job": {
      const { state, behind } = feeding;
      const small = behind === null ? state : `${state} · behind ${compact(behind)}`;
      return { id, reads, name, small, title: name, look: `is-job tone-edge-${toneOfJob(state)}` };
    }
  }
}

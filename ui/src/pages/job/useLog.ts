import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { jobLogQuery } from "../../api/clusterQueries";
import type { JobLogLine } from "../../api/schema";
import { withNew } from "../../model/log";

interface Known {
  readonly job: string;
  readonly seenMs: number;
  readonly lines: readonly JobLogLine[];
}

/** The lines of a job as they come; each answer has what is behind the last known line. */
export function useLog(job: string) {
  const [known, setKnown] = useState<Known>({ job, seenMs: 0, lines: [] });
  const lines = known.job === job ? known.lines : [];
  const query = useQuery(jobLogQuery(job, lines.at(-1)?.seq ?? 0));
  const { data, dataUpdatedAt } = query;
  if (data !== undefined && (known.job !== job || known.seenMs !== dataUpdatedAt)) {
    setKnown({ job, seenMs: dataUpdatedAt, lines: withNew(lines, data) });
  }
  return { query, lines, seenMs: known.seenMs };
}

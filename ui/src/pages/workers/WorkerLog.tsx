import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef } from "react";

import { workerLogQuery } from "../../api/clusterQueries";
import type { WorkerLog as Log } from "../../api/schema";
import { bytes } from "../../format/numbers";
import { Answered } from "../../parts/Answered";

const NEAR_PX = 24;

/** The end of its log. It follows, as long as one reads the last line. */
export function WorkerLog({ id }: { id: string }) {
  const query = useQuery(workerLogQuery(id));
  return <Answered query={query}>{(log) => <Tail log={log} />}</Answered>;
}

function Tail({ log }: { log: Log }) {
  const box = useRef<HTMLPreElement>(null);
  const follows = useRef(true);
  useEffect(() => {
    if (follows.current && box.current !== null) box.current.scrollTop = box.current.scrollHeight;
  }, [log.text]);
  return (
    <figure>
      <figcaption className="quiet">The end of its log, {bytes(log.size_bytes)} in all</figcaption>
      <pre
        ref={box}
        className="log-tail"
        // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls can be reached by keyboard
        tabIndex={0}
        onScroll={({ currentTarget: { scrollHeight, scrollTop, clientHeight } }) => {
          follows.current = scrollHeight - scrollTop - clientHeight < NEAR_PX;
        }}
      >
        {log.text === "" ? "It is empty." : log.text}
      </pre>
    </figure>
  );
}

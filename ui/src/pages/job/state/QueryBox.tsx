import { useQuery } from "@tanstack/react-query";
import { useRef, useState } from "react";

import { savepointQuery } from "../../../api/queries";
import type { QueryLimits } from "../../../api/schema";
import { bytes, count } from "../../../format/numbers";
import { type StateView, placeOf } from "../../../model/savepointQuery";
import { Notice } from "../../../parts/Notice";
import { ResultTable } from "./ResultTable";

interface Props {
  readonly job: string;
  readonly view: StateView;
  readonly suggested: string;
  readonly limits: QueryLimits;
  readonly run: (sql: string) => void;
}

/** One SELECT over the states. What was run stands in the URL. */
export function QueryBox({ job, view, suggested, limits, run }: Props) {
  const [written, setWritten] = useState(view.sql);
  const box = useRef<HTMLTextAreaElement>(null);
  const answer = useQuery(savepointQuery(job, view.id, view.sql));
  const sql = written ?? suggested;
  const start = () => {
    if (sql.trim() === "") return;
    if (sql === view.sql) void answer.refetch();
    else run(sql);
  };
  return (
    <form
      className="query"
      onSubmit={(event) => {
        event.preventDefault();
        start();
      }}
    >
      <label htmlFor="sql">SQL over these states</label>
      <textarea
        id="sql"
        ref={box}
        value={sql}
        rows={Math.min(12, Math.max(3, sql.split("\n").length))}
        spellCheck={false}
        autoCapitalize="off"
        aria-describedby="limits"
        aria-invalid={answer.isError}
        onChange={({ target }) => {
          setWritten(target.value);
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
            event.preventDefault();
            start();
          }
        }}
      />
      <div className="actions">
        <button type="submit" disabled={answer.isFetching || sql.trim() === ""}>
          {answer.isFetching ? "Running …" : "Run"}
        </button>
        <span className="quiet">Ctrl+Enter</span>
      </div>
      <p id="limits" className="quiet">
        {limitsSentence(limits)}
      </p>
      {answer.isError && !answer.isFetching && (
        <Refusal
          text={answer.error.message}
          place={placeOf(answer.error.message, view.sql ?? "")}
          onPlace={(place) => {
            setWritten(view.sql);
            box.current?.focus();
            box.current?.setSelectionRange(place, place + 1);
          }}
        />
      )}
      {answer.data !== undefined && !answer.isError && <ResultTable answer={answer.data} />}
    </form>
  );
}

function Refusal({
  text,
  place,
  onPlace,
}: {
  text: string;
  place: number | null;
  onPlace: (place: number) => void;
}) {
  return (
    <Notice tone="bad">
      <bdi>{text}</bdi>{" "}
      {place !== null && (
        <button
          type="button"
          onClick={() => {
            onPlace(place);
          }}
        >
          show where
        </button>
      )}
    </Notice>
  );
}

function limitsSentence({ rows, answer_bytes, cell_characters, seconds, ...limits }: QueryLimits): string {
  return (
    `One SELECT, which reads nothing but this snapshot. It may take ${count(seconds)} s and ` +
    `${bytes(limits.memory_bytes)} of memory, and read states of ${bytes(limits.state_bytes)}; shown are at most ` +
    `${count(rows)} rows, ${bytes(answer_bytes)}, and ${count(cell_characters)} characters of a value.`
  );
}

import { useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useState } from "react";

import type { JobLogLine } from "../../api/schema";
import { count } from "../../format/numbers";
import { LEVELS, type Level, filtered, textOf } from "../../model/log";
import { Answered } from "../../parts/Answered";
import { Filter } from "../../parts/Filter";
import { LogLines } from "./LogLines";
import { useLog } from "./useLog";
import "./log.css";

const SHOWN_MS = 1_500;

/** What the functions of the job have logged: it follows, until one stops it. */
export function LogTab() {
  const { job } = useParams({ from: "/jobs/$job" });
  const { query, lines, seenMs } = useLog(job);
  const known = lines.length === 0 ? null : { data: [...lines], atMs: seenMs };
  return (
    <Answered query={query} known={known}>
      {() => <Log lines={lines} />}
    </Answered>
  );
}

function Log({ lines }: { lines: readonly JobLogLine[] }) {
  const { q = "", level = "DEBUG" } = useSearch({ from: "/jobs/$job/log" });
  const navigate = useNavigate({ from: "/jobs/$job/log" });
  const [paused, setPaused] = useState<readonly JobLogLine[] | null>(null);
  const [copied, setCopied] = useState(false);
  const change = (changes: { q?: string; level?: Level }) => {
    void navigate({ search: (before) => ({ ...before, ...changes }), replace: true });
  };
  const shown = filtered(paused ?? lines, q, level);
  const waiting = paused === null ? 0 : lines.filter(({ seq }) => seq > (paused.at(-1)?.seq ?? 0)).length;
  return (
    <>
      <div className="log-bar">
        <Filter
          label="With"
          text={q}
          change={(text) => {
            change({ q: text });
          }}
        />
        <label className="filter">
          <span>From</span>
          <select
            value={level}
            onChange={(event) => {
              change({ level: LEVELS.find((one) => one === event.target.value) ?? "DEBUG" });
            }}
          >
            {LEVELS.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
        <button
          type="button"
          aria-pressed={paused !== null}
          onClick={() => {
            setPaused(paused === null ? lines : null);
          }}
        >
          {paused === null ? "Pause" : `Go on (${count(waiting)} new)`}
        </button>
        <button
          type="button"
          onClick={() => {
            void navigator.clipboard.writeText(textOf(shown)).then(() => {
              setCopied(true);
              setTimeout(() => {
                setCopied(false);
              }, SHOWN_MS);
            });
          }}
        >
          {copied ? "Copied" : `Copy ${count(shown.length)} lines`}
        </button>
      </div>
      {shown.length === 0 ? (
        <p className="empty">
          {lines.length === 0
            ? "Its functions have logged nothing, or it ended long ago: the last thousand lines are kept while the job is in memory."
            : "No line is like this."}
        </p>
      ) : (
        <LogLines lines={shown} follows={paused === null} />
      )}
    </>
  );
}

import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { useState } from "react";

import { jobQuery } from "../../api/queries";
import type { JobInfo } from "../../api/schema";
import { count } from "../../format/numbers";
import {
  type Choice,
  type LettersTable,
  commandsOf,
  failingOf,
  lettersTables,
  tableArgument,
} from "../../model/deadLetters";
import { Answered } from "../../parts/Answered";
import { Copyable } from "../../parts/Copyable";
import { Scrolls } from "../../parts/Scrolls";
import { LetterRows } from "./LetterRows";
import "./letters.css";

const ALL: Choice = { operator: "", error: "", pipeline: "" };

/** Rows that could not be processed: how many of which operator, and what looks at them and replays them. */
export function DeadLettersTab() {
  const { job } = useParams({ from: "/jobs/$job" });
  const query = useQuery(jobQuery(job));
  return <Answered query={query}>{(info) => <DeadLetters info={info} />}</Answered>;
}

function DeadLetters({ info }: { info: JobInfo }) {
  const failing = failingOf(info);
  const [choice, setChoice] = useState(ALL);
  if (failing.length === 0) {
    return (
      <p className="empty">
        No row has failed in this job, or its operators fail the job instead:{" "}
        <code>on_error=&quot;fail&quot;</code>.
      </p>
    );
  }
  return (
    <>
      <Scrolls label="Dead letters">
        <table>
          <thead>
            <tr>
              <th scope="col">Operator</th>
              <th scope="col" className="number">
                Dead letters
              </th>
              <th scope="col" className="number">
                Left out
              </th>
            </tr>
          </thead>
          <tbody>
            {failing.map(({ operator, letters, skipped }) => (
              <tr key={operator}>
                <th scope="row">
                  <bdi>{operator}</bdi>
                </th>
                <td className="number">{count(letters)}</td>
                <td className="number">{count(skipped)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scrolls>
      <p className="quiet">
        {info.restarts > 0 &&
          "The job has restarted, so these counts are approximate; the tables are exact. "}
        The letters are in the tables below, with their rows and errors. Rows that are wrong themselves can be
        corrected before they are replayed, here or by these commands, which take your code as it is now.
      </p>
      <Choose choice={choice} change={setChoice} />
      <Tables job={info.job} tables={lettersTables(info.writes)} choice={choice} />
    </>
  );
}

function Choose({ choice, change }: { choice: Choice; change: (choice: Choice) => void }) {
  const fields = [
    ["operator", "Only of this operator"],
    ["error", "Only this error, such as ValueError"],
    ["pipeline", "Pipeline of a replay, MODULE:FUNCTION"],
  ] as const;
  return (
    <fieldset className="letters-choice">
      <legend>Choose letters</legend>
      {fields.map(([name, text]) => (
        <label key={name}>
          {text}{" "}
          <input
            value={choice[name]}
            spellCheck={false}
            onChange={({ target }) => {
              change({ ...choice, [name]: target.value });
            }}
          />
        </label>
      ))}
    </fieldset>
  );
}

interface TablesProps {
  readonly job: string;
  readonly tables: readonly LettersTable[];
  readonly choice: Choice;
}

function Tables({ job, tables, choice }: TablesProps) {
  const sure = tables.filter((table) => table.sure);
  const others = tables.filter((table) => !table.sure);
  if (tables.length === 0) {
    return (
      <p className="empty">No sink says where it writes; the job has ended, or nobody reads the letters.</p>
    );
  }
  return (
    <>
      {sure.map((table) => (
        <Commands key={`${table.uid} ${table.uri}`} job={job} table={table} choice={choice} />
      ))}
      {others.length > 0 && (
        <details>
          <summary>
            {sure.length > 0
              ? "Other sinks of this job"
              : "Sinks of this job; one of them may have the letters"}
          </summary>
          <div className="stack">
            {others.map((table) => (
              <Commands key={`${table.uid} ${table.uri}`} job={job} table={table} choice={choice} />
            ))}
          </div>
        </details>
      )}
    </>
  );
}

interface CommandsProps extends Pick<TablesProps, "job" | "choice"> {
  readonly table: LettersTable;
}

function Commands({ job, table, choice }: CommandsProps) {
  const argument = tableArgument(table.uri);
  const commands = argument === null ? null : commandsOf(argument, choice);
  return (
    <section className="card">
      <h2>
        <bdi>{table.uid}</bdi>
      </h2>
      <Copyable text={table.uri} />
      {commands === null ? (
        <p className="quiet">
          Only its sink can read it: name it as <code>MODULE:FUNCTION#{table.uid}</code>.
        </p>
      ) : (
        <dl className="commands">
          {(["list", "show", "replay"] as const).map((name) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>
                <Copyable text={commands[name]} />
              </dd>
            </div>
          ))}
        </dl>
      )}
      {argument !== null && <LetterRows job={job} uri={table.uri} table={argument} choice={choice} />}
    </section>
  );
}

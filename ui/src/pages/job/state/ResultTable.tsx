import { useState } from "react";

import type { QueryAnswer } from "../../../api/schema";
import { count } from "../../../format/numbers";
import { duration } from "../../../format/times";
import { isNumber, separated, shownRows, widthsOf } from "../../../model/savepointQuery";
import { CopyText } from "../../../parts/CopyText";
import { Notice } from "../../../parts/Notice";

const ROW = 28; // px, as in state.css
const HEIGHT = 420;

/** The rows of a query; only those that are seen are drawn. */
export function ResultTable({ answer }: { answer: QueryAnswer }) {
  const { result, limits } = answer;
  const [top, setTop] = useState(0);
  const { first, last } = shownRows({ top, height: HEIGHT }, ROW, result.rows.length);
  const widths = widthsOf(result);
  return (
    <section aria-label="Result">
      <div className="actions">
        <span role="status">
          {count(result.rows.length)} {result.rows.length === 1 ? "row" : "rows"} of {answer.kind}{" "}
          {answer.checkpoint_id}, in {duration(answer.took_ms)}
        </span>
        <CopyText text={() => separated(result, ",")} name="CSV" />
        <CopyText text={() => separated(result, "\t")} name="TSV" />
      </div>
      {result.more && (
        <Notice tone="warn">There are more rows than these: add LIMIT or WHERE, or count them.</Notice>
      )}
      {result.cut > 0 && (
        <Notice tone="warn">
          {`${count(result.cut)} values are cut after ${count(limits.cell_characters)} characters, also when they are copied.`}
        </Notice>
      )}
      <div
        className="result"
        role="region"
        aria-label="Rows"
        // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls is reached by keyboard
        tabIndex={0}
        style={{ maxHeight: HEIGHT }}
        onScroll={({ currentTarget }) => {
          setTop(currentTarget.scrollTop);
        }}
      >
        <table
          aria-rowcount={result.rows.length + 1}
          style={{ width: `${widths.reduce((sum, width) => sum + width, 0)}ch` }}
        >
          <colgroup>
            {widths.map((width, index) => (
              <col key={index} style={{ width: `${width}ch` }} />
            ))}
          </colgroup>
          <thead>
            <tr aria-rowindex={1}>
              {result.columns.map(({ name, type }, index) => (
                <th
                  key={index}
                  scope="col"
                  title={`${name} ${type}`}
                  className={isNumber(type) ? "number" : ""}
                >
                  <bdi>{name}</bdi>
                  <div className="quiet">{type.toLowerCase()}</div>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            <Space rows={first} />
            {result.rows.slice(first, last).map((row, index) => (
              <tr key={first + index} aria-rowindex={first + index + 2}>
                {row.map((cell, column) => (
                  <Cell key={column} text={cell} type={result.columns[column]?.type ?? ""} />
                ))}
              </tr>
            ))}
            <Space rows={result.rows.length - last} />
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Cell({ text, type }: { text: string | null; type: string }) {
  if (text === null) return <td className="quiet">null</td>;
  return (
    <td className={isNumber(type) ? "number" : ""} title={text}>
      <bdi>{text}</bdi>
    </td>
  );
}

function Space({ rows }: { rows: number }) {
  return rows <= 0 ? null : <tr aria-hidden="true" style={{ height: rows * ROW }} />;
}

import { useId, useState } from "react";

import type { LetterShown } from "../../api/schema";
import { wrongIn } from "../../model/corrections";
import { Copyable } from "../../parts/Copyable";
import { Time } from "../../parts/Time";

interface Props {
  readonly letter: LetterShown;
  readonly areRecords: boolean;
  readonly text: string;
  readonly change: (text: string) => void;
}

/** One row that failed: what it is, why it failed, and the same corrected. */
export function LetterRow({ letter, areRecords, text, change }: Props) {
  const [edits, setEdits] = useState(false);
  const what = areRecords ? "record" : "row";
  return (
    <li className="letter">
      <div className="title">
        <strong className="why">
          <bdi>{letter.error_type}</bdi>: <bdi>{letter.error}</bdi>
        </strong>
      </div>
      <p className="quiet">
        <bdi>{letter.operator}</bdi>
        {letter.error_at !== null && (
          <>
            {" "}
            at <Copyable text={letter.error_at} />
          </>
        )}
        {letter.time_ms !== null && (
          <>
            , <Time ms={letter.time_ms} />
          </>
        )}
        , letter <Copyable text={letter.letter} shown={letter.letter.slice(0, 8)} />
        {letter.attempt > 1 && `, attempt ${letter.attempt}`}
        {letter.replayed && ", replayed already"}
      </p>
      {edits && !letter.replayed ? (
        <Editor letter={letter} areRecords={areRecords} text={text} change={change} />
      ) : (
        <pre
          // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls can be reached by keyboard
          tabIndex={0}
        >
          {text}
        </pre>
      )}
      {letter.is_cut && <p className="quiet">The {what} is longer than what is shown.</p>}
      {!letter.replayed && !letter.is_cut && (
        <button
          type="button"
          onClick={() => {
            setEdits(!edits);
          }}
        >
          {edits ? "Done" : text === letter.row ? `Correct the ${what}` : `Correct the ${what} again`}
        </button>
      )}
    </li>
  );
}

function Editor({ letter, areRecords, text, change }: Props) {
  const id = useId();
  const wrong = wrongIn(letter, text, areRecords);
  return (
    <>
      <label htmlFor={id}>{areRecords ? "The record's value" : "The row, as JSON"}</label>
      <textarea
        id={id}
        value={text}
        spellCheck={false}
        rows={Math.min(12, text.split("\n").length + 2)}
        aria-invalid={wrong !== null}
        aria-describedby={`${id}-wrong`}
        onChange={({ target }) => {
          change(target.value);
        }}
      />
      <p id={`${id}-wrong`} className="why" role="status">
        {wrong}
      </p>
      {text !== letter.row && (
        <button
          type="button"
          onClick={() => {
            change(letter.row);
          }}
        >
          As it was
        </button>
      )}
    </>
  );
}

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { lettersQuery } from "../../api/clusterQueries";
import type { LettersPage } from "../../api/schema";
import { count } from "../../format/numbers";
import { type Corrections, corrected } from "../../model/corrections";
import { type Choice, editsCommand } from "../../model/deadLetters";
import { replaysOver } from "../../model/operations";
import { Answered } from "../../parts/Answered";
import { useOperations } from "../../parts/operations";
import { LetterRow } from "./LetterRow";
import { ReplayLetters } from "./ReplayLetters";
import { SavedCorrections } from "./SavedCorrections";

interface Props {
  readonly job: string;
  readonly uri: string;
  /** As the command line takes the table. */
  readonly table: string;
  readonly choice: Choice;
}

/** The letters of a table with their rows, to be read and corrected. They are read when somebody asks for them. */
export function LetterRows({ job, uri, table, choice }: Props) {
  const [isOpen, setIsOpen] = useState(false);
  if (!isOpen) {
    return (
      <p>
        <button
          type="button"
          onClick={() => {
            setIsOpen(true);
          }}
        >
          Show the rows
        </button>
      </p>
    );
  }
  return <Read job={job} uri={uri} table={table} choice={choice} />;
}

function Read({ job, uri, table, choice }: Props) {
  const query = useQuery(lettersQuery(job, uri, choice, replaysOver(useOperations(), job)));
  const [corrections, setCorrections] = useState<Corrections>(new Map());
  return (
    <Answered query={query}>
      {(page) => (
        <>
          <Counts page={page} />
          <ul className="letters">
            {page.letters.map((letter) => (
              <LetterRow
                key={letter.letter}
                letter={letter}
                areRecords={page.are_records}
                text={corrections.get(letter.letter) ?? letter.row}
                change={(text) => {
                  setCorrections(corrected(corrections, letter, text));
                }}
              />
            ))}
          </ul>
          {page.more > 0 && (
            <p className="quiet">
              {count(page.more)} older ones are not shown: choose an operator or an error, or use the command.
            </p>
          )}
          {corrections.size > 0 && (
            <SavedCorrections
              corrections={corrections}
              areRecords={page.are_records}
              command={editsCommand(table, choice)}
            />
          )}
          <ReplayLetters
            job={job}
            uri={uri}
            page={page}
            choice={choice}
            corrections={corrections}
            taken={() => {
              setCorrections(new Map());
            }}
          />
        </>
      )}
    </Answered>
  );
}

function Counts({ page: { groups } }: { page: LettersPage }) {
  if (groups.length === 0) return <p className="empty">There is no letter in this table.</p>;
  return (
    <ul className="quiet">
      {groups.map((group) => (
        <li key={`${group.operator_uid} ${group.error_type}`}>
          <bdi>{group.operator}</bdi>, <bdi>{group.error_type}</bdi>: {count(group.letters)} letters, of which{" "}
          {count(group.replayed)} were replayed
        </li>
      ))}
    </ul>
  );
}

import { useEffect, useMemo } from "react";

import { count } from "../../format/numbers";
import { type Corrections, fileOf } from "../../model/corrections";
import { Copyable } from "../../parts/Copyable";

interface Props {
  readonly corrections: Corrections;
  readonly areRecords: boolean;
  readonly command: string;
}

/** The corrections as a file, and the command that replays them where the code of the pipeline is. */
export function SavedCorrections({ corrections, areRecords, command }: Props) {
  const url = useMemo(() => {
    const file = new Blob([fileOf(corrections, areRecords)], { type: "application/x-ndjson" });
    return URL.createObjectURL(file);
  }, [corrections, areRecords]);
  useEffect(
    () => () => {
      URL.revokeObjectURL(url);
    },
    [url],
  );
  return (
    <section className="notice tone-busy" aria-label="Corrections">
      <p>
        {count(corrections.size)} {corrections.size === 1 ? "letter is" : "letters are"} corrected, on this
        page only. Replay them below, or save them for the command; no other letter is replayed then.
      </p>
      <p>
        <a href={url} download="edits.jsonl">
          Save edits.jsonl
        </a>
      </p>
      <Copyable text={command} />
    </section>
  );
}

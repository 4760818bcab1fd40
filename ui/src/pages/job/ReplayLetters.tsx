import { useRef, useState } from "react";

import { askReplay } from "../../api/actions";
import { Refused, Unreachable } from "../../api/client";
import type { LettersPage } from "../../api/schema";
import type { Corrections } from "../../model/corrections";
import type { Choice } from "../../model/deadLetters";
import { replaying } from "../../model/operations";
import { chosenOf, leftOf, replayBody, wrongAmong } from "../../model/replays";
import { NoChanges } from "../../parts/NoChanges";
import { Notice } from "../../parts/Notice";
import { newId, store, useOperations } from "../../parts/operations";
import { useMay } from "../../parts/useMay";

interface Props {
  readonly job: string;
  readonly uri: string;
  readonly page: LettersPage;
  readonly choice: Choice;
  readonly corrections: Corrections;
  /** The cluster has taken it: the corrections are its now. */
  readonly taken: () => void;
}

/** Letters processed again by the cluster itself: those that are corrected, or else all that are chosen. */
export function ReplayLetters(props: Props) {
  const may = useMay("operate");
  const underWay = useOperations().some(
    (one) => one.job === props.job && one.action === "replay" && one.step !== "over",
  );
  const { page, choice, corrections } = props;
  if (page.no_replay !== null)
    return <p className="quiet">Here they cannot be replayed: {page.no_replay}.</p>;
  if (may.is !== "yes") return <NoChanges may={may} />;
  if (underWay) {
    return (
      <p className="quiet" role="status">
        A replay is under way: see above. These rows are read again when it is over.
      </p>
    );
  }
  if (corrections.size === 0 && leftOf(page.groups, choice) === 0) return null;
  return <Ask {...props} />;
}

function Ask({ job, uri, page, choice, corrections, taken }: Props) {
  const [asks, setAsks] = useState(false);
  const [fromEmptyState, setFromEmptyState] = useState(false);
  const [said, setSaid] = useState<string | null>(null);
  const [isSent, setIsSent] = useState(false);
  const trigger = useRef<string | null>(null); // asked again after no answer, it is the same replay
  const what = chosenOf(page.groups, choice, corrections);
  const wrong = wrongAmong(page.letters, corrections, page.are_records);
  const replay = async () => {
    const triggerId = (trigger.current ??= newId());
    setIsSent(true);
    setSaid(null);
    try {
      const asked = { table: uri, triggerId, fromEmptyState };
      await askReplay(job, replayBody(asked, choice, corrections, page.are_records));
      store(replaying({ id: triggerId, job, startedMs: Date.now() }));
      taken();
    } catch (error) {
      if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
      if (error instanceof Refused) trigger.current = null;
      setSaid(error.message);
    }
    setIsSent(false);
  };
  if (!asks) {
    return (
      <p>
        <button
          type="button"
          disabled={wrong !== null}
          onClick={() => {
            setAsks(true);
          }}
        >
          Replay {what}…
        </button>{" "}
        <span className="why">{wrong}</span>
      </p>
    );
  }
  return (
    <section className="card" aria-label="Replay">
      <p>
        A job of this cluster processes {what} again, with the pipeline as this job was submitted: from the
        operator that failed on, to the sinks. Each letter is replayed once; rows that fail again are letters
        again.
      </p>
      <label>
        <input
          type="checkbox"
          checked={fromEmptyState}
          onChange={({ target }) => {
            setFromEmptyState(target.checked);
          }}
        />{" "}
        Also through operators with state, which begin empty
      </label>
      {said !== null && <Notice tone="bad">{said}</Notice>}
      <p className="next">
        <button type="button" disabled={isSent || wrong !== null} onClick={() => void replay()}>
          Replay
        </button>{" "}
        <button
          type="button"
          onClick={() => {
            setAsks(false);
          }}
        >
          Not now
        </button>
      </p>
    </section>
  );
}

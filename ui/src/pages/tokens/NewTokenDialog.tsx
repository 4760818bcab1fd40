import { type SyntheticEvent, useId, useState } from "react";

import { makeToken } from "../../api/tokens";
import type { NewToken } from "../../api/schema";
import { type Scope, SCOPES, meaningOf } from "../../model/access";
import { DURATIONS, FIRST_DURATION, FIRST_SCOPE } from "../../model/tokens";
import { Copyable } from "../../parts/Copyable";
import { Dialog } from "../../parts/Dialog";
import { Notice } from "../../parts/Notice";
import { useLeave } from "../../parts/useLeave";
import { said } from "../../api/said";

/** Makes a token, and shows its text once. */
export function NewTokenDialog({ closed }: { closed: () => void }) {
  const [made, setMade] = useState<NewToken | null>(null);
  return (
    <Dialog title={made === null ? "New token" : "A new token"} closed={closed}>
      {made === null ? <Asked made={setMade} /> : <MadeToken made={made} />}
    </Dialog>
  );
}

function Asked({ made }: { made: (token: NewToken) => void }) {
  const leave = useLeave();
  const [name, setName] = useState("");
  const [scope, setScope] = useState<Scope>(FIRST_SCOPE);
  const [lasts, setLasts] = useState(FIRST_DURATION);
  const [isSent, setIsSent] = useState(false);
  const [wrong, setWrong] = useState<string | null>(null);
  const hint = useId();
  const make = async () => {
    setIsSent(true);
    setWrong(null);
    try {
      const lastsMs = DURATIONS.find(([one]) => one === lasts)?.[1] ?? null;
      made(await makeToken({ name: name.trim(), scope, lastsMs, uses: null }));
    } catch (error) {
      setWrong(
        said(error, "If it was made all the same, it is in the list: revoke it, nobody knows its text."),
      );
    }
    setIsSent(false);
  };
  const submit = (event: SyntheticEvent) => {
    event.preventDefault();
    if (!isSent) void make();
  };
  return (
    <form onSubmit={submit}>
      <label className="field">
        Name
        <input
          type="text"
          required
          maxLength={100}
          autoComplete="off"
          spellCheck={false}
          aria-describedby={hint}
          value={name}
          onChange={({ target }) => {
            setName(target.value);
          }}
        />
        <span id={hint} className="quiet">
          Who gets it, or what for: it stands in this list and in logs.
        </span>
      </label>
      <fieldset className="points">
        <legend>Scope</legend>
        {SCOPES.map((one) => (
          <label key={one} className="point">
            <input
              type="radio"
              name="scope"
              checked={one === scope}
              onChange={() => {
                setScope(one);
              }}
            />
            <span>
              {one} <span className="quiet">{meaningOf(one)}</span>
            </span>
          </label>
        ))}
      </fieldset>
      <label className="field">
        It is taken for
        <select
          value={lasts}
          onChange={({ target }) => {
            setLasts(target.value);
          }}
        >
          {DURATIONS.map(([one]) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </label>
      {wrong !== null && <Notice tone="bad">{wrong}</Notice>}
      <div className="confirm">
        <button type="button" onClick={leave}>
          Leave it
        </button>
        <button type="submit" className="primary" disabled={isSent || name.trim() === ""}>
          {isSent ? "Making it…" : "Make it"}
        </button>
      </div>
    </form>
  );
}

/** Its text, which nobody can look up later. */
export function MadeToken({ made }: { made: NewToken }) {
  const leave = useLeave();
  return (
    <>
      <Notice tone="good">
        The token <bdi>{made.name}</bdi> is taken from now on. Copy it: its text is shown this once.
      </Notice>
      <Copyable text={made.token} />
      <p className="quiet">
        Commands and programs take it from <code>UNISTREAM_TOKEN</code>, a browser on the page that asks for
        it.
      </p>
      <div className="confirm">
        <button type="button" className="primary" onClick={leave}>
          Done
        </button>
      </div>
    </>
  );
}

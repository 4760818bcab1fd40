import { type SyntheticEvent, useId, useState } from "react";

import { makeToken } from "../../api/tokens";
import type { NewToken } from "../../api/schema";
import { JOIN_DURATIONS, USES_MAX, usesOf } from "../../model/hosts";
import { Copyable } from "../../parts/Copyable";
import { Dialog } from "../../parts/Dialog";
import { Notice } from "../../parts/Notice";
import { useLeave } from "../../parts/useLeave";
import { said } from "../../api/said";

const NAME = "hosts that join";
const [[FIRST]] = JOIN_DURATIONS as readonly [(typeof JOIN_DURATIONS)[number]];

/** Makes a token with which hosts join, and shows what to type there, once. */
export function NewJoinDialog({ closed }: { closed: () => void }) {
  const [made, setMade] = useState<NewToken | null>(null);
  return (
    <Dialog title={made === null ? "New join token" : "A new join token"} closed={closed}>
      {made === null ? (
        <Asked made={setMade} />
      ) : (
        <MadeJoinToken made={made} at={globalThis.location.origin} />
      )}
    </Dialog>
  );
}

function Asked({ made }: { made: (token: NewToken) => void }) {
  const leave = useLeave();
  const [name, setName] = useState(NAME);
  const [hosts, setHosts] = useState("1");
  const [lasts, setLasts] = useState(FIRST);
  const [isSent, setIsSent] = useState(false);
  const [wrong, setWrong] = useState<string | null>(null);
  const hint = useId();
  const uses = usesOf(hosts);
  const make = async () => {
    setIsSent(true);
    setWrong(null);
    try {
      const lastsMs = JOIN_DURATIONS.find(([one]) => one === lasts)?.[1] ?? null;
      made(await makeToken({ name: name.trim(), scope: "join", lastsMs, uses }));
    } catch (error) {
      setWrong(
        said(error, "If it was made all the same, it is in the list: revoke it, nobody knows its text."),
      );
    }
    setIsSent(false);
  };
  const submit = (event: SyntheticEvent) => {
    event.preventDefault();
    if (!isSent && uses !== null) void make();
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
          value={name}
          onChange={({ target }) => {
            setName(target.value);
          }}
        />
      </label>
      <label className="field">
        Hosts
        <input
          type="number"
          required
          min={1}
          max={USES_MAX}
          aria-describedby={hint}
          value={hosts}
          onChange={({ target }) => {
            setHosts(target.value);
          }}
        />
        <span id={hint} className="quiet">
          So many may join with it. Who has it runs code of jobs, so take no more than you need.
        </span>
      </label>
      <label className="field">
        It is taken for
        <select
          value={lasts}
          onChange={({ target }) => {
            setLasts(target.value);
          }}
        >
          {JOIN_DURATIONS.map(([one]) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </label>
      {wrong !== null && <Notice tone="bad">{wrong}</Notice>}
      <div className="confirm">
        <button type="button" onClick={leave}>
          Leave it
        </button>
        <button type="submit" className="primary" disabled={isSent || name.trim() === "" || uses === null}>
          {isSent ? "Making it…" : "Make it"}
        </button>
      </div>
    </form>
  );
}

/** What to type on the host. `at`: where this page is. */
export function MadeJoinToken({ made, at }: { made: NewToken; at: string }) {
  const leave = useLeave();
  return (
    <>
      <Notice tone="good">
        Type this on each host that shall join. The token in it is shown this once, and is kept nowhere.
      </Notice>
      <Copyable text={`unistream taskmanager start -m ${at} --join ${made.token}`} />
      <p className="quiet">
        <code>{at}</code> is where this page is: behind a tunnel or a proxy put the address of the cluster
        there.
      </p>
      <div className="confirm">
        <button type="button" className="primary" onClick={leave}>
          Done
        </button>
      </div>
    </>
  );
}

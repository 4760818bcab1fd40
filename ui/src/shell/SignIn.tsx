import { useState } from "react";

import { logIn, signInBy } from "../api/login";
import { type Out, session } from "../api/session";
import { Copyable } from "../parts/Copyable";
import { Notice } from "../parts/Notice";
import { ThemeChoice } from "./ThemeChoice";
import { TokenForm } from "./TokenForm";
import "./shell.css";
import "./signIn.css";

/** In place of every page until somebody is signed in: why, a field for a token, and how one gets in. */
export function SignIn({ out }: { out: Out }) {
  const { why, isRefusal, code, goesOn } = out;
  const [isAsking, setIsAsking] = useState(false);
  const [wrong, setWrong] = useState<string | null>(null);
  const submit = async (text: string) => {
    setIsAsking(true);
    setWrong(null);
    setWrong(await signInBy(text));
    setIsAsking(false);
  };
  return (
    <>
      <header className="bar">
        <span className="brand">unistream</span>
        <span className="bar-end">
          <ThemeChoice />
        </span>
      </header>
      <main className="sign-in">
        <h1>Sign in</h1>
        {why !== null && <Notice tone={isRefusal ? "bad" : "quiet"}>{why}</Notice>}
        {code !== null && (
          <button type="button" onClick={() => void logIn(code)}>
            Try the link again
          </button>
        )}
        {goesOn && (
          <button
            type="button"
            onClick={() => {
              session.enter();
            }}
          >
            Go on as before
          </button>
        )}
        <TokenForm isAsking={isAsking} wrong={wrong} submit={(text) => void submit(text)} />
        <HowTo />
      </main>
    </>
  );
}

function HowTo() {
  return (
    <section className="card" aria-labelledby="how">
      <h2 id="how">How one gets in</h2>
      <p>
        This cluster answers its owner, and who has a token. On the account of its owner a command prints a
        link that lets one browser in, once:
      </p>
      <Copyable text="unistream ui" />
      <p>For somebody else the owner makes a token, whose text goes into the field:</p>
      <Copyable text="unistream token create NAME --scope read" />
    </section>
  );
}

import { present } from "./asked";
import { Unreachable, apart } from "./client";
import { OWN_HEADERS } from "./headers";
import { jsonIn, sentencesOf, wantsToken } from "./refusals";
import type { NewToken } from "./schema";
import { type Session, session } from "./session";

const CODE = /^#login=(.*)$/s;
const SAYS_CODE = /#login=(\S+)/;
/** What a header can hold. */
const PRINTED = /^[!-~]+$/;

type Answer<T> =
  | { readonly is: "taken"; readonly body: T }
  /** By the JobManager. */
  | { readonly is: "denied"; readonly why: string }
  /** Nobody has answered, or who stands before the JobManager has. */
  | { readonly is: "away"; readonly why: string };

/**
 * Finds out who this tab is: by the link that has opened it, by what it or another tab knows. Where nobody needs a token, or
 * a proxy presents one, nothing is asked. Until `end` a link may also be opened in this tab.
 */
export async function begin(
  of: Session = session,
  end: AbortSignal = new AbortController().signal,
): Promise<void> {
  of.begin();
  const code = takenCode();
  const onHash = () => {
    const later = takenCode();
    if (later !== null) void logIn(later, of);
  };
  addEventListener("hashchange", onHash, { signal: end });
  if (code !== null) return logIn(code, of);
  if (of.token() !== null) {
    of.enter();
    return;
  }
  const others = of.ofOthers();
  const first = await identified(null);
  if (first.is === "taken") {
    of.enter();
    return;
  }
  const token = await others;
  if (of.state().is !== "starting") return; // somebody has signed in meanwhile
  if (token !== null) of.adopt(token);
  if (token !== null || first.is === "away") of.enter();
  else of.leave();
}

/** The code in the address, where it stands no more. */
function takenCode(): string | null {
  const found = CODE.exec(location.hash);
  if (found === null) return null;
  history.replaceState(history.state, "", location.pathname + location.search);
  return found[1] ?? "";
}

/** By the code of a link. */
export async function logIn(code: string, of: Session = session): Promise<void> {
  of.start();
  const answer = await answered<NewToken>("POST", "/unistream/login", { body: { code } });
  switch (answer.is) {
    case "taken":
      of.signIn({ text: answer.body.token, isOfLink: true });
      return;
    case "denied": {
      const token = of.token() ?? (await of.ofOthers());
      if (token !== null) of.adopt(token);
      of.leave({ why: answer.why, isRefusal: true });
      return;
    }
    case "away":
      of.leave({ why: answer.why, isRefusal: true, code });
      return;
  }
}

/** By what somebody has typed: a token, or a whole link. Null: it was taken; else one sentence why not. */
export async function signInBy(typed: string, of: Session = session): Promise<string | null> {
  const text = typed.trim();
  const code = SAYS_CODE.exec(text)?.[1];
  if (code !== undefined) {
    await logIn(code, of);
    return null;
  }
  if (!PRINTED.test(text)) return "This is no token: it has characters that none has.";
  const answer = await identified(text);
  if (answer.is !== "taken") return answer.why;
  of.signIn({ text, isOfLink: false });
  return null;
}

/** Here and in other tabs. What was made for this browser is taken no more; a token that was pasted may be another's, too. */
export async function signOut(of: Session = session): Promise<void> {
  const token = of.signOut();
  if (token?.isOfLink === true) await answered("DELETE", "/unistream/identity", { text: token.text });
}

function identified(text: string | null): Promise<Answer<unknown>> {
  return answered("GET", "/unistream/identity", text === null ? {} : { text });
}

interface Asks {
  readonly text?: string;
  readonly body?: unknown;
}

/** A request that has nothing to do with who is signed in. */
async function answered<T>(method: string, path: string, { text, body }: Asks): Promise<Answer<T>> {
  try {
    const request = new Request(path, {
      method,
      headers: { ...OWN_HEADERS, ...(body === undefined ? {} : { "content-type": "application/json" }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    if (text !== undefined) present(request, text);
    const answer = await apart(request);
    const why = await wantsToken(answer);
    if (why !== null) return { is: "denied", why };
    const found = jsonIn(await answer.text());
    if (answer.ok) return { is: "taken", body: found as T };
    return { is: "away", why: sentencesOf(answer.status, found).join(" ") };
  } catch (error) {
    if (error instanceof Unreachable) return { is: "away", why: error.message };
    throw error;
  }
}

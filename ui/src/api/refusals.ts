/** Of a standby, which answers for a leader: that there is none now, say. */
export const STANDBY_HEADER = "x-unistream-standby";

const LOGIN = [401, 407];
const FORBIDDEN = 403;
const GATEWAY = [502, 504];
const UNAVAILABLE = 503;

/**
 * What a refusal says: the sentences of a JobManager, or one about what answers in its place, such as a proxy that does the
 * login. Never empty.
 */
export function sentencesOf(status: number, body: unknown): readonly string[] {
  const said = wordsOf(body);
  if (said !== null) return said;
  if (LOGIN.includes(status)) {
    return [`Who stands before the JobManager asks who you are (${status}): sign in there.`];
  }
  if (status === FORBIDDEN) {
    return [
      "Who stands before the JobManager does not let you pass (403): sign in there as somebody who may.",
    ];
  }
  if (GATEWAY.includes(status) || status === UNAVAILABLE) {
    return [`Who stands before the JobManager does not reach it (${status}).`];
  }
  return [`The answer was ${status}.`];
}

/** The sentences of a JobManager; null: it was not one that has answered. */
function wordsOf(body: unknown): readonly string[] | null {
  const said = typeof body === "object" && body !== null && "errors" in body ? body.errors : null;
  return Array.isArray(said) && said.length > 0 && said.every((one) => typeof one === "string") ? said : null;
}

const TOKEN_WANTED = 401;
const SCHEME = /^bearer\b/i;

/** Why a JobManager does not take the token of a request, or wants one; null: it does not say that. The answer is not read. */
export async function wantsToken(answer: Response): Promise<string | null> {
  if (answer.status !== TOKEN_WANTED || !isJson(answer)) return null;
  if (!SCHEME.test(answer.headers.get("www-authenticate") ?? "")) return null;
  return wordsOf(jsonIn(await answer.clone().text()))?.join(" ") ?? null;
}

/** What a text says, which need not be JSON. */
export function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}

/** It was not the JobManager that has refused, and the same request may succeed later. */
export function isOfAnother(answer: Response): boolean {
  const { status } = answer;
  if (status === UNAVAILABLE) return answer.headers.has(STANDBY_HEADER);
  return LOGIN.includes(status) || status === FORBIDDEN || GATEWAY.includes(status);
}

/** Of an answer that should be JSON, and is a page instead: that of a login, say. */
export const NO_JOBMANAGER =
  "What answers is not the JobManager, perhaps the page of a login: sign in there, or load this page again.";

export function isJson(answer: Response): boolean {
  return answer.headers.get("content-type")?.includes("json") ?? false;
}

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
  const said = typeof body === "object" && body !== null && "errors" in body ? body.errors : null;
  if (Array.isArray(said) && said.length > 0 && said.every((one) => typeof one === "string")) return said;
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

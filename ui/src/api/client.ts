import createClient from "openapi-fetch";

import { asked } from "./asked";
import { OWN_HEADERS } from "./headers";
import { NO_JOBMANAGER, isJson, sentencesOf } from "./refusals";
import type { paths } from "./schema";

export const TIMEOUT_MS = 10_000;

/** The server answered, and not as asked. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly sentences: readonly string[],
  ) {
    super(sentences.join("\n"));
    this.name = "Refused";
  }
}

/** Nobody answered in time, or what answered was no JobManager. */
export class Unreachable extends Error {
  constructor(why: string) {
    super(why);
    this.name = "Unreachable";
  }
}

export const client = createClient<paths>({
  baseUrl: "/",
  headers: OWN_HEADERS,
  fetch: (request) => timely(request),
});

/** For a call that may take longer: its own `fetch`. */
export function patient(timeoutMs: number): (request: Request) => Promise<Response> {
  return (request) => timely(request, timeoutMs);
}

/** For a request that presents a token of its own, or needs none: no answer to it signs anybody out. */
export function apart(request: Request): Promise<Response> {
  return timely(request, TIMEOUT_MS, (one) => fetch(one));
}

async function timely(
  request: Request,
  timeoutMs = TIMEOUT_MS,
  ask: (request: Request) => Promise<Response> = asked,
): Promise<Response> {
  const signal = AbortSignal.any([request.signal, AbortSignal.timeout(timeoutMs)]);
  let answer: Response;
  try {
    answer = await ask(new Request(request, { signal }));
  } catch (error) {
    if (request.signal.aborted) throw error;
    const slow = error instanceof DOMException && error.name === "TimeoutError";
    throw new Unreachable(
      slow
        ? `The JobManager has not answered within ${timeoutMs / 1000} seconds.`
        : "The JobManager does not answer. It may have ended, or another one leads now.",
    );
  }
  if (answer.ok && !isJson(answer)) throw new Unreachable(NO_JOBMANAGER);
  return answer;
}

type Answer<T> = { data?: T; error?: unknown; response: Response };

/** The data of an answer. Throws Refused with the sentences of who has refused. */
export function dataOf<T>(answer: Answer<T>): T {
  if (answer.data !== undefined) return answer.data;
  const { status } = answer.response;
  throw new Refused(status, sentencesOf(status, answer.error));
}

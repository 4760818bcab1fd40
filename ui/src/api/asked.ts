import { wantsToken } from "./refusals";
import { session } from "./session";

/** `fetch` with the token of this tab. A JobManager that does not take it, or wants one, brings the sign-in page. */
export async function asked(request: Request): Promise<Response> {
  const text = session.token()?.text ?? null;
  if (text !== null) present(request, text);
  const answer = await fetch(request);
  const why = await wantsToken(answer);
  if (why !== null) void session.denied(text, why);
  return answer;
}

/** The one place where a token leaves the page. */
export function present(request: Request, text: string): void {
  request.headers.set("Authorization", `Bearer ${text}`);
}

import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider, createMemoryHistory } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";

import { routerAt } from "../src/router";

/** What the server says to a request: a body, a refusal, nothing yet, or nothing ever since it is away. */
export type Answer =
  | { readonly body: unknown }
  | { readonly status: number; readonly errors: readonly string[] }
  | "never"
  | "away";

/**
 * One component, or one page, in one of its states. `shows`: a text that proves the state. `isHuge`: the same as a smaller
 * one, so that axe, which needs seconds for it, would find nothing new.
 */
export interface Story {
  readonly isHuge?: boolean;
  readonly group: string;
  readonly name: string;
  readonly shows: string;
  readonly show: () => ReactNode;
  readonly answers: Answers;
}

/** Ends of paths, the first one that fits, to what is answered; all else is `otherwise`. */
export interface Answers {
  readonly paths: Readonly<Record<string, Answer>>;
  readonly otherwise: Answer;
}

/** Of a component that asks nobody. */
export const NOBODY: Answers = { paths: {}, otherwise: "never" };

/** `fetch` of a story: what stands between a page and its server. */
export function answering({ paths, otherwise }: Answers): (input: RequestInfo | URL) => Promise<Response> {
  return async (input) => {
    const url = input instanceof Request ? input.url : String(input);
    const { pathname } = new URL(url, location.href);
    const found = Object.entries(paths).find(([end]) => pathname.endsWith(end));
    const answer = found === undefined ? otherwise : found[1];
    if (answer === "never") return new Promise<Response>(() => undefined);
    if (answer === "away") throw new TypeError("Failed to fetch");
    const [status, body] = "body" in answer ? [200, answer.body] : [answer.status, { errors: answer.errors }];
    return new Response(JSON.stringify(body), {
      status,
      headers: { "content-type": "application/json" },
    });
  };
}

/** A path of the UI, with all that stands around a page. */
export function Page({ path }: { path: string }) {
  const [router] = useState(() => routerAt(createMemoryHistory({ initialEntries: [`/ui${path}`] })));
  return (
    <Queries>
      <RouterProvider router={router} />
    </Queries>
  );
}

/** Each story begins without knowing anything, and asks once. */
export function Queries({ children }: { children: ReactNode }) {
  const [queries] = useState(
    () => new QueryClient({ defaultOptions: { queries: { retry: false, gcTime: Infinity } } }),
  );
  return <QueryClientProvider client={queries}>{children}</QueryClientProvider>;
}

import { QueryClient, QueryClientProvider, useQueryClient } from "@tanstack/react-query";
import { RouterProvider, createMemoryHistory } from "@tanstack/react-router";
import { type ReactNode, useEffect, useState } from "react";

import { routerAt } from "../src/router";

/** What the server says to a request: a body, a refusal, nothing yet, or nothing ever since it is away. */
export type Answer =
  | { readonly body: unknown }
  | { readonly status: number; readonly errors: readonly string[] }
  | "never"
  | "away";

/** One component, or one page, in one of its states. `shows`: a text that proves the state. */
export interface Story {
  /** In which state its components are; by itself its name, if that is one. */
  readonly state?: State;
  readonly group: string;
  readonly name: string;
  readonly shows: string;
  /** What is not there then. */
  readonly hides?: readonly string[];
  /** What is typed into the first field. */
  readonly typed?: string;
  /** Beginnings of the names of buttons that are pressed first, one after the other. */
  readonly press?: readonly string[];
  readonly show: () => ReactNode;
  readonly answers: Answers;
}

/** Of everything that is shown. `stale`: it was answered once, and is refused since then. */
export const STATES = ["loading", "refused", "stale", "empty", "full", "huge"] as const;
export type State = (typeof STATES)[number];

/** Null: of no answer. */
export function stateOf({ state, name }: Story): State | null {
  return state ?? STATES.find((one) => one === name) ?? null;
}

/** Ends of paths, the first one that fits, to what is answered; all else is `otherwise`. */
export interface Answers {
  readonly paths: Readonly<Record<string, Answer>>;
  readonly otherwise: Answer;
  /** What each path is answered from the second time on; by itself the same. */
  readonly later?: Answer;
  /** The same of some paths alone, by their ends. */
  readonly laterOf?: Readonly<Record<string, Answer>>;
}

/** Of a component that asks nobody. */
export const NOBODY: Answers = { paths: {}, otherwise: "never" };

/** `fetch` of a story: what stands between a page and its server. */
export function answering({
  paths,
  otherwise,
  later,
  laterOf = {},
}: Answers): (input: RequestInfo | URL) => Promise<Response> {
  const asked = new Set<string>();
  return async (input) => {
    const url = input instanceof Request ? input.url : String(input);
    const { pathname } = new URL(url, location.href);
    const found = Object.entries(paths).find(([end]) => pathname.endsWith(end));
    const first = found === undefined ? otherwise : found[1];
    const next = Object.entries(laterOf).find(([end]) => pathname.endsWith(end))?.[1] ?? later;
    const answer = asked.has(pathname) && next !== undefined ? next : first;
    asked.add(pathname);
    if (answer === "never") return new Promise<Response>(() => undefined);
    if (answer === "away") throw new TypeError("Failed to fetch");
    const [status, body] = "body" in answer ? [200, answer.body] : [answer.status, { errors: answer.errors }];
    return new Response(JSON.stringify(body), {
      status,
      headers: { "content-type": "application/json" },
    });
  };
}

/** A path of the UI, with all that stands around a page. `asksAgain`: for all that was answered, once this text is there. */
export function Page({ path, asksAgain = null }: { path: string; asksAgain?: string | null }) {
  const [router] = useState(() => routerAt(createMemoryHistory({ initialEntries: [`/ui${path}`] })));
  return (
    <Queries>
      {asksAgain !== null && <AskedAgain behind={asksAgain} />}
      <RouterProvider router={router} />
    </Queries>
  );
}

const AGAIN_MS = 50;

/** Each query that has an answer is asked for once more. */
function AskedAgain({ behind }: { behind: string }) {
  const queries = useQueryClient();
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.body.textContent.includes(behind)) return;
      const predicate = ({ state }: { state: { dataUpdateCount: number; status: string } }) =>
        state.dataUpdateCount > 0 && state.status === "success";
      void queries.refetchQueries({ predicate, type: "active" }, { cancelRefetch: false });
    }, AGAIN_MS);
    return () => {
      clearInterval(timer);
    };
  }, [queries, behind]);
  return null;
}

/** Each story begins without knowing anything, and asks once. */
export function Queries({ children }: { children: ReactNode }) {
  const [queries] = useState(
    () => new QueryClient({ defaultOptions: { queries: { retry: false, gcTime: Infinity } } }),
  );
  return <QueryClientProvider client={queries}>{children}</QueryClientProvider>;
}

import "./tokens.css";
import "./base.css";
import "./parts/parts.css";

import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider, createBrowserHistory } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { Refused } from "./api/client";
import { live } from "./api/live";
import { begin } from "./api/login";
import { session } from "./api/session";
import { routerAt } from "./router";
import { Gate } from "./shell/Gate";

const TRIES = 3;

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      retry: (failures, error) => failures < TRIES && !(error instanceof Refused && error.status < 500),
      refetchOnWindowFocus: true,
    },
  },
});

/** Ends what keeps the data of pages as it is; null: nobody is signed in. */
let leave: (() => void) | null = null;

/** What somebody has seen is there as long as that one is signed in; the next one asks for it again. */
function onSession() {
  const isIn = session.state().is === "in";
  if (isIn && leave === null) leave = live.start(queries);
  if (!isIn && leave !== null) {
    leave();
    leave = null;
    queries.clear();
  }
}

session.subscribe(onSession);
void begin(); // it takes the code of a link from the address, before the router reads that
const router = routerAt(createBrowserHistory());

const root = document.getElementById("root");
if (root === null) throw new Error("the page has no element #root");
createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <Gate>
        <RouterProvider router={router} />
      </Gate>
    </QueryClientProvider>
  </StrictMode>,
);

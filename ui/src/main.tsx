import "./tokens.css";
import "./base.css";
import "./parts/parts.css";

import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { Refused } from "./api/client";
import { live } from "./api/live";
import { router } from "./router";

const TRIES = 3;

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      retry: (failures, error) => failures < TRIES && !(error instanceof Refused && error.status < 500),
      refetchOnWindowFocus: true,
    },
  },
});

live.start(queries);

const root = document.getElementById("root");
if (root === null) throw new Error("the page has no element #root");
createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  </StrictMode>,
);

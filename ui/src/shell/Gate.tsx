import type { ReactNode } from "react";

import { useSession } from "../api/queries";
import { SignIn } from "./SignIn";

/** Pages for whom the cluster answers; for all others the page on which they sign in. */
export function Gate({ children }: { children: ReactNode }) {
  const state = useSession();
  switch (state.is) {
    case "starting":
      return (
        <main className="sign-in">
          <div className="skeleton" role="status" aria-label="Signing in" />
        </main>
      );
    case "in":
      return children;
    case "out":
      return <SignIn key={state.why} out={state} />;
  }
}

import type { ReactNode } from "react";

import type { Tone } from "../model/states";

/** A sentence about the whole page or a part of it; `bad` and `warn` are read out at once. */
export function Notice({ tone, children }: { tone: Tone; children: ReactNode }) {
  const isUrgent = tone === "bad" || tone === "warn";
  return (
    <div className={`notice tone-${tone}`} role={isUrgent ? "alert" : "status"}>
      {children}
    </div>
  );
}

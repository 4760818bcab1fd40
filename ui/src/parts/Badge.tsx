import type { ReactNode } from "react";

import type { Tone } from "../model/states";

/** A state: by its word, a colour and a dot, so that nobody needs to see the colour. */
export function Badge({ tone, children }: { tone: Tone; children: ReactNode }) {
  return <span className={`badge tone-${tone}`}>{children}</span>;
}

import type { ReactNode } from "react";

/** What is wider than a narrow window, and has nothing in it that could be focused: arrow keys scroll it. */
export function Scrolls({ label, children }: { label: string; children: ReactNode }) {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- WCAG 2.1.1: a scrollable region is reached by keyboard
    <div className="scrolls" role="group" aria-label={label} tabIndex={0}>
      {children}
    </div>
  );
}

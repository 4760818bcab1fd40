import { useNavigate } from "@tanstack/react-router";
import { useEffect, useRef } from "react";

/** Pages by the key that follows `g`. */
export const PLACES = {
  o: "/",
  w: "/workers",
  c: "/cluster",
  h: "/history",
  b: "/procedures",
  p: "/explain",
  s: "/simulation",
  t: "/tokens",
  a: "/audit",
  n: "/hosts",
  z: "/certificates",
} as const;

const SEQUENCE_MS = 1_000;

/** Keys of the whole page; none of them acts while somebody types in a field, or has a dialog to answer. */
export function useKeys(actions: Readonly<Record<string, () => void>>) {
  const navigate = useNavigate();
  const pressed = useRef({ key: "", atMs: 0 });
  useEffect(() => {
    const act = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isField(event.target) || isAsked()) return;
      const before = event.timeStamp - pressed.current.atMs < SEQUENCE_MS ? pressed.current.key : "";
      pressed.current = { key: event.key, atMs: event.timeStamp };
      const place = before === "g" && Object.hasOwn(PLACES, event.key) ? event.key : null;
      if (place !== null) {
        void navigate({ to: PLACES[place as keyof typeof PLACES] });
        return;
      }
      const action = actions[event.key];
      if (action !== undefined) {
        event.preventDefault();
        action();
      }
    };
    addEventListener("keydown", act);
    return () => {
      removeEventListener("keydown", act);
    };
  });
}

function isAsked(): boolean {
  return document.querySelector("dialog[open]") !== null;
}

function isField(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest("input, textarea, select, [contenteditable]") !== null;
}

import { useSyncExternalStore } from "react";

const NARROW = "(max-width: 640px)";

/** The page is as narrow as that of a telephone: what goes on to the right goes on downwards. */
export function useIsNarrow(): boolean {
  return useSyncExternalStore(subscribe, () => matchMedia(NARROW).matches);
}

function subscribe(changed: () => void): () => void {
  const query = matchMedia(NARROW);
  query.addEventListener("change", changed);
  return () => {
    query.removeEventListener("change", changed);
  };
}

import { useMemo } from "react";

/** A value of JSON that is the very same object for as long as it says the same. */
export function useSame<T>(value: T): T {
  const text = JSON.stringify(value);
  return useMemo(() => JSON.parse(text) as T, [text]);
}

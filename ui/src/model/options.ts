import type { OptionShown } from "../api/schema";

export const ORIGINS = ["given", "environment", "derived", "default", "unset"] as const;
export type Origin = OptionShown["origin"];

/** Where a value is from, as a sentence says it. */
export function originInWords(origin: Origin): string {
  switch (origin) {
    case "given":
      return "given: by -D or the program";
    case "environment":
      return "a variable of the environment";
    case "derived":
      return "the cluster's folder or other options";
    case "default":
      return "its default";
    case "unset":
      return "has no value";
  }
}

/** Options whose key, value or meaning has the text, whatever its case; `all`: also those that nobody has set. */
export function chosenOptions(options: readonly OptionShown[], text: string, all: boolean): OptionShown[] {
  const wanted = text.trim().toLowerCase();
  return options.filter(({ key, value, doc, origin }) => {
    if (!all && wanted === "" && (origin === "default" || origin === "unset")) return false;
    return [key, value ?? "", doc].some((one) => one.toLowerCase().includes(wanted));
  });
}

import type { PlanBody, StateOutcome } from "../api/schema";
import type { Tone } from "./states";

/** What somebody has filled in, as it stands in the fields. */
export interface Draft {
  readonly entryPoint: string;
  readonly parameters: string;
  readonly parallelism: string;
  readonly name: string;
  readonly savepoint: string;
  readonly allowNonRestored: boolean;
  readonly config: string;
}

export const EMPTY_DRAFT: Draft = {
  entryPoint: "",
  parameters: "",
  parallelism: "",
  name: "",
  savepoint: "",
  allowNonRestored: false,
  config: "",
};

const MOST_SUBTASKS = 32_768;

/** What is asked of the cluster; the document says of `parameters` only that they are an object. */
export type Asked = Omit<PlanBody, "parameters"> & { readonly parameters: Record<string, unknown> };

/** What is asked of the cluster, or one sentence about what is wrong in the fields. */
export function bodyOf(draft: Draft): Asked | string {
  const parameters = parametersOf(draft.parameters);
  if (typeof parameters === "string") return parameters;
  const parallelism = parallelismOf(draft.parallelism);
  if (typeof parallelism === "string") return parallelism;
  const config = configOf(draft.config);
  if (typeof config === "string") return config;
  return {
    entryPoint: draft.entryPoint.trim(),
    parameters,
    parallelism,
    name: draft.name.trim() === "" ? null : draft.name.trim(),
    savepoint: draft.savepoint.trim() === "" ? null : draft.savepoint.trim(),
    allowNonRestored: draft.allowNonRestored,
    config,
  };
}

function parametersOf(text: string): Record<string, unknown> | string {
  if (text.trim() === "") return {};
  let found: unknown;
  try {
    found = JSON.parse(text);
  } catch {
    return 'The parameters are no JSON: write an object, such as {"limit": 10}.';
  }
  if (typeof found !== "object" || found === null || Array.isArray(found)) {
    return 'The parameters are no object: write one, such as {"limit": 10}.';
  }
  return { ...found };
}

function parallelismOf(text: string): number | null | string {
  if (text.trim() === "") return null;
  const found = Number(text);
  return Number.isInteger(found) && found >= 1 && found <= MOST_SUBTASKS
    ? found
    : `The parallelism is a whole number from 1 to ${MOST_SUBTASKS}.`;
}

function configOf(text: string): Record<string, string> | string {
  const found = new Map<string, string>();
  for (const line of text.split("\n").map((one) => one.trim())) {
    if (line === "") continue;
    const at = line.indexOf("=");
    const key = line.slice(0, at).trim();
    if (at < 1 || key === "")
      return `Options have the form key=value, one in a line, which “${line}” has not.`;
    if (found.has(key)) return `The option ${key} stands here twice.`;
    found.set(key, line.slice(at + 1).trim());
  }
  return Object.fromEntries(found);
}

/** What happens to a state. */
export function toneOf(outcome: StateOutcome): Tone {
  switch (outcome) {
    case "kept":
    case "new":
      return "good";
    case "migrated":
      return "busy";
    case "dropped":
    case "unknown until it runs":
      return "warn";
    case "refused":
      return "bad";
  }
}

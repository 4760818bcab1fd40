import { STATES, type State, type Story, stateOf } from "./story";

/** Each component that a module of ours exports, by its name, with its source. */
export const COMPONENTS = Object.entries(
  import.meta.glob<Record<string, unknown>>("../src/{pages,parts,shell}/**/*.tsx", { eager: true }),
).flatMap(([path, module]) =>
  Object.entries(module)
    .filter(([name]) => /^[A-Z][a-z]/.test(name))
    .map(([name, component]) => ({ name, component, path })),
);
const SOURCES = import.meta.glob<string>("../src/**/*.tsx", {
  query: "?raw",
  import: "default",
  eager: true,
});

export const drawn = new Map<unknown, Set<State | null>>(
  COMPONENTS.map(({ component }) => [component, new Set()]),
);

export function note(story: Story, components: ReadonlySet<unknown>): void {
  for (const component of components) drawn.get(component)?.add(stateOf(story));
}

/** Where a state does not apply, and why. */
const OF_THE_JOB = "JobPage waits for the same answer, and says so";
const NOT: Readonly<Record<string, Partial<Record<State, string>>>> = {
  BatchTab: { loading: OF_THE_JOB, refused: OF_THE_JOB },
  ConfigurationTab: { loading: OF_THE_JOB, refused: OF_THE_JOB },
  DeadLettersTab: { loading: OF_THE_JOB, refused: OF_THE_JOB },
  ExceptionsTab: { loading: OF_THE_JOB, refused: OF_THE_JOB },
  RescaleFields: { stale: "a dialog is closed before" },
  MadeJoinToken: { loading: "it is the answer", refused: "it is the answer" },
  Authorities: { empty: "a cluster without one says so in their place" },
  JobRow: { empty: "a row is of a job" },
  MadeToken: { loading: "it is the answer", refused: "it is the answer" },
  LetterRows: { empty: "without a letter no row is asked for" },
};

/** A list in its props, which may be empty or endless. */
const LIST = /readonly \w+\??: (?:readonly [^;{]*\[\]|Readonly(?:Map|Set)<)/;
/** It changes something, and waits for the answer. */
const SENDS = /\bsetIsSent\(/;

/** The states that what it is given, asks for and sends allow, and that no story draws. */
export function missing(name: string, path: string, states: ReadonlySet<State | null>): string[] {
  const wanted = new Set(allowed(SOURCES[path] ?? ""));
  return STATES.filter(
    (state) => wanted.has(state) && NOT[name]?.[state] === undefined && !states.has(state),
  );
}

function allowed(source: string): readonly State[] {
  if (source.includes("<Answered")) return STATES;
  return [
    ...(LIST.test(source) ? (["empty", "full", "huge"] as const) : []),
    ...(SENDS.test(source) ? (["loading", "refused"] as const) : []),
  ];
}

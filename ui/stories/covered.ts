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
  LetterRows: { empty: "without a letter no row is asked for" },
};

/** Of what it asks for. */
export function missing(name: string, path: string, states: ReadonlySet<State | null>): string[] {
  const asks = SOURCES[path]?.includes("<Answered") === true;
  const wanted = asks ? STATES.filter((state) => NOT[name]?.[state] === undefined) : [];
  return wanted.filter((state) => !states.has(state));
}

/** A pipeline that the cluster is asked to plan, and what comes of it. */
import type { PlanShown, StatesPlanned } from "../src/api/schema";
import { StatesTable } from "../src/pages/submit/StatesTable";
import { NAMES } from "./fixtures";
import { FULL, RECORDED, answered } from "./recorded";
import { type Answer, NOBODY, Page, type Story } from "./story";

const EXPLAINED = {
  ...{ name: NAMES.html, type: "STREAMING" },
  streamGraph: { nodes: [{ id: "1", vertex: "a", contents: NAMES.html, uid: "numbers", predecessors: [] }] },
  jobGraph: { nodes: [{ id: "a", description: NAMES.rightToLeft, parallelism: 2, inputs: [] }] },
  executionGraph: {
    ...{ subtasks: 2, regions: { count: 1 } },
    vertices: [{ id: "a", name: NAMES.rightToLeft, maxParallelism: 128, slotSharingGroup: "default" }],
  },
};

function states(refused: boolean, operators: number): StatesPlanned {
  const fates = ["kept", "new", "migrated", "dropped", "unknown until it runs", "refused"] as const;
  return {
    refused,
    problems: refused ? [`operator ${NAMES.html} is gone`] : [],
    operators: Array.from({ length: operators }, (_, index) => ({
      ...{
        uid: `${index} ${NAMES.html}`,
        name: NAMES.long,
        fate: fates[index % 6] ?? "kept",
        why: NAMES.html,
      },
      states: [{ state: NAMES.rightToLeft, fate: fates[(index + 1) % 6] ?? "new", why: "", rows: index }],
    })),
  };
}

const PLAN: PlanShown = {
  ...{ id: "a".repeat(32), expiresMs: 1, name: NAMES.html, plan: EXPLAINED, states: null },
  advice: [`operator ${NAMES.html} has no uid`],
};

function submitted(
  name: string,
  shows: string,
  planned: Answer,
  more: { readonly press?: readonly string[]; readonly start?: Answer; readonly typed?: string } = {},
): Story {
  const { press = ["Plan it"], start = "never", typed = "flights.pipeline:build" } = more;
  return {
    ...{ group: "Submit a pipeline", name, shows, typed, press },
    show: () => <Page path="/submit" />,
    answers: {
      paths: { "/start": start, ...answered(FULL) },
      otherwise: "never",
      laterOf: { "/unistream/plans": planned },
    },
  };
}

const WHY = `build raised ValueError: ${NAMES.html}`;
const FRAMES = `Traceback (most recent call last):\n  File "/srv/${NAMES.html}.py", line 7, in build\n`;
const ok = (plan: Partial<PlanShown>): Answer => ({ body: { ...PLAN, ...plan } });
const starting = ["Plan it", "Start the job"];

export const SUBMIT: readonly Story[] = [
  submitted("loading", "Planning it", "never"),
  submitted("refused", "line 7, in build", { status: 400, errors: [WHY, FRAMES] }),
  submitted("unreachable", "Nothing runs", "away"),
  submitted("planned", "Start the job", ok({})),
  submitted("from a savepoint", "The job can start from it", ok({ states: states(false, 2) })),
  submitted("not from this savepoint", "cannot start from it", ok({ id: null, states: states(true, 7) })),
  submitted("a plan of another version", "This is no plan", ok({ plan: { streamGraph: 1 } })),
  { ...submitted("being started", "Starting it", ok({}), { press: starting }), state: "loading" },
  {
    ...submitted("not started", "writes there", ok({}), {
      press: starting,
      start: { status: 400, errors: [`job ${NAMES.html} writes there`] },
    }),
    state: "refused",
  },
  submitted("started", "pre-aggregate", ok({}), { press: starting, start: { body: { jobid: RECORDED } } }),
  {
    ...{ group: "States of a savepoint", name: "huge", shows: "299 <script>", answers: NOBODY },
    show: () => <StatesTable states={states(false, 300)} />,
  },
  {
    ...{ group: "States of a savepoint", name: "empty", shows: "can start from it", answers: NOBODY },
    show: () => <StatesTable states={states(false, 0)} />,
  },
];

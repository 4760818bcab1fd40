/** Dialogs of actions, what was asked for, and what is drawn of files. */
import { type ReactNode, useEffect, useState } from "react";

import type { JobInfo } from "../src/api/schema";
import type { Action, Subject } from "../src/model/actions";
import type { Explained } from "../src/model/explained";
import { type Operation, type Step, begun } from "../src/model/operations";
import type { Bar } from "../src/model/checkpointStrip";
import type { Feeding } from "../src/model/feeds";
import type { Lane } from "../src/model/timeline";
import type { Picture } from "../src/model/story";
import { ExplainedGraph } from "../src/pages/explain/ExplainedGraph";
import { ExplainedTable } from "../src/pages/explain/ExplainedTable";
import { CheckpointStrip } from "../src/pages/job/CheckpointStrip";
import { TimelinePicture } from "../src/pages/job/TimelinePicture";
import { ActionDialog } from "../src/pages/job/actions/ActionDialog";
import { SavedCorrections } from "../src/pages/job/SavedCorrections";
import { FeedsGraph } from "../src/pages/overview/FeedsGraph";
import { StoryPicture } from "../src/pages/simulation/StoryPicture";
import { dismiss, store } from "../src/parts/operations";
import { OtherMasters } from "../src/shell/OtherMasters";
import { JOB, NAMES, NOW_MS, job, wide } from "./fixtures";
import { DETAILS, RECORDED, answered } from "./recorded";
import { NOBODY, Page, Queries, type Answer, type Answers, type State, type Story } from "./story";

const nothing = () => undefined;
const REFUSED = { status: 503, errors: ["The metadata database does not answer."] } as const;

function subjectOf(info: JobInfo): Subject {
  return { job: info, checkpoints: null, kept: true, underWay: [], nowMs: NOW_MS };
}

function dialog(
  action: Action,
  name: string,
  info: JobInfo,
  shows: string,
  answers: Answers = NOBODY,
  press?: readonly string[],
): Story {
  return {
    group: `Dialog: ${action}`,
    name,
    shows,
    answers,
    show: () => (
      <Queries>
        <ActionDialog action={action} subject={subjectOf(info)} job={info} begin={nothing} close={nothing} />
      </Queries>
    ),
    ...(press === undefined ? {} : { press }),
  };
}

const RUNS = wide(2, 2);
const ENDED = job([], {
  state: "FINISHED",
  ended_ms: NOW_MS,
  name: NAMES.html,
  resumes_from: `/savepoints/${NAMES.long}`,
});
const DIALOGS: readonly (readonly [Action, JobInfo, string])[] = [
  ["savepoint", RUNS, "Directory of the savepoint"],
  ["stop", RUNS, "Directory of the savepoint"],
  ["drain", RUNS, "Directory of the savepoint"],
  ["cancel", RUNS, "Cancel the job"],
  ["start", ENDED, "Start a job"],
];

/** Widths of vertices: of how many, or how the cluster answers. */
const WIDTHS: readonly (readonly [State, Answer, string])[] = [
  ["loading", "never", "Then"],
  ["refused", REFUSED, "does not answer"],
  ["empty", { body: { ...DETAILS, vertices: [] } }, "Subtasks"],
  ["full", { body: DETAILS }, "at most"],
  [
    "huge",
    {
      body: {
        ...DETAILS,
        vertices: Array.from({ length: 60 }, (_, index) => ({
          ...DETAILS.vertices[0],
          id: `${index}`,
          name: `${index} ${NAMES.html}`,
        })),
      },
    },
    "59 <script>",
  ],
];

function asked(name: string, action: Operation["action"], step: Step, more: Partial<Operation>): Operation {
  // now: this browser forgets what was asked for a day ago, whenever the rest was recorded
  const first = begun({ id: name, job: RECORDED, action, startedMs: Date.now(), wanted: {} });
  return { ...first, step, ...more };
}

/** In this browser, while the story is shown. */
function Asked({ operations }: { operations: readonly Operation[] }) {
  useState(() => {
    operations.forEach(store);
  });
  useEffect(
    () => () => {
      for (const { id } of operations) dismiss(id);
    },
    [operations],
  );
  return <Page path={`/jobs/${RECORDED}/plan`} />;
}

function operations(name: string, shows: string, ...of: Operation[]): Story {
  const paths = answered();
  return {
    group: "What was asked for",
    name,
    shows,
    show: () => <Asked operations={of} />,
    answers: { paths, otherwise: "never" },
  };
}

const PLAN: Explained = {
  ...{ name: NAMES.html, type: "STREAMING", subtasks: 4, regions: 1 },
  vertices: ["a", "b"].map((id) => ({
    ...{ id, name: NAMES.rightToLeft, parallelism: 2, maxParallelism: 128, slotSharingGroup: "default" },
    operators: [{ name: NAMES.html, uid: id }],
    inputs: id === "a" ? [] : [{ id: "a", ship: "hash", exchange: "pipelined", obstacle: "its keys differ" }],
  })),
};

const PICTURE: Picture = {
  lanes: ["user", NAMES.html],
  rows: [{ number: 1, atMs: 5, text: NAMES.html, kind: "message", from: 0, to: 1 }],
};

const of = (number: number) => Array.from({ length: number }, (_, index) => index);

/** A row of them, each read by the next. */
function places(number: number): Feeding[] {
  return of(number).map((index) => ({
    ...{ kind: "place", id: `${index}`, name: NAMES.html },
    reads: index === 0 ? [] : [`${index - 1}`],
  }));
}

function bars(number: number): Bar[] {
  return of(number).map((id) => ({
    ...{ id, kind: "checkpoint", status: id % 7 === 0 ? "failed" : "completed", startedMs: id },
    ...{ durationMs: id % 5 === 0 ? null : id, stateBytes: 0, path: null, reason: NAMES.html, figures: null },
  }));
}

function lanes(number: number): Lane[] {
  return of(number).map((index) => ({ name: `${index} ${NAMES.rightToLeft}`, items: [] }));
}

function drawn(group: string, name: string, shows: string, show: () => ReactNode): Story {
  return { group, name, shows, show: () => <main>{show()}</main>, answers: NOBODY };
}

export const DIALOGS_AND_FILES: readonly Story[] = [
  ...DIALOGS.map(([action, info, shows]) => dialog(action, "full", info, shows)),
  ...DIALOGS.filter(([action]) => action !== "start").map(([action]) =>
    dialog(action, "the job has ended", ENDED, "The job has ended as FINISHED."),
  ),
  dialog(
    "start",
    "empty",
    job([], { state: "FAILED", latest_checkpoint: null, checkpoints: [] }),
    "No savepoint",
  ),
  dialog("savepoint", "tasks are missing", wide(2, 2, { state: "RESTARTING" }), "It can be done when"),
  ...(["rescale", "upgrade"] as const).flatMap((action) =>
    WIDTHS.map(([state, answer, shows]) =>
      dialog(action, state, RUNS, shows, { paths: { [`/jobs/${JOB}`]: answer }, otherwise: "never" }),
    ),
  ),
  operations("under way", "The savepoint is being taken", asked("s", "savepoint", "watch", { kept: true })),
  operations(
    "away",
    "It is asked again",
    asked("a", "stop", "ask", { trouble: "The JobManager does not answer." }),
  ),
  operations(
    "refused",
    "nothing has changed",
    asked("r", "rescale", "over", { outcome: { is: "refused", why: NAMES.html } }),
  ),
  operations("an upgrade", "Give up", asked("u", "upgrade", "check", { kept: true })),
  drawn("Plan of a file", "full", "its keys differ", () => (
    <>
      <ExplainedGraph plan={PLAN} />
      <ExplainedTable plan={PLAN} />
    </>
  )),
  ...(
    [
      ["empty", 0],
      ["full", 1],
      ["huge", 300],
    ] as const
  ).flatMap(([state, number]) => [
    drawn("Graph of feeds", state, "React Flow", () => (
      <FeedsGraph feeds={places(number)} moving={new Set()} open={nothing} />
    )),
    drawn("Strip of checkpoints", state, "", () => (
      <CheckpointStrip bars={bars(number)} chosen={0} other={null} choose={nothing} />
    )),
    drawn("Picture of a timeline", state, "", () => (
      <TimelinePicture
        lanes={lanes(number)}
        range={{ fromMs: 0, toMs: 1_000 }}
        choose={nothing}
        onKey={() => false}
      />
    )),
  ]),
  drawn("Story of a file", "full", "user", () => <StoryPicture picture={PICTURE} />),
  drawn("Story of a file", "empty", "No line of the story", () => (
    <StoryPicture picture={{ lanes: [], rows: [] }} />
  )),
  drawn("Corrections", "full", "1 letter is corrected", () => (
    <SavedCorrections corrections={new Map([["l1", "{}"]])} areRecords command="unistream dead-letters" />
  )),
  drawn("Other masters", "full", "Or open it at b:1", () => (
    <OtherMasters masters={[{ origin: "http://b:1", host: "b:1" }]} />
  )),
];

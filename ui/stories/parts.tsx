import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { Refused } from "../src/api/client";
import { Answered } from "../src/parts/Answered";
import { Badge } from "../src/parts/Badge";
import { Copyable } from "../src/parts/Copyable";
import { CopyText } from "../src/parts/CopyText";
import { Facts } from "../src/parts/Facts";
import { Filter } from "../src/parts/Filter";
import { Notice } from "../src/parts/Notice";
import { ReadFile } from "../src/parts/ReadFile";
import { Scrolls } from "../src/parts/Scrolls";
import { Spark } from "../src/parts/Spark";
import { Ago, Time } from "../src/parts/Time";
import { NAMES, NOW_MS } from "./fixtures";
import { NOBODY, type Story } from "./story";

const TONES = ["good", "busy", "warn", "bad", "quiet"] as const;
const nothing = () => undefined;

function part(group: string, name: string, shows: string, show: () => ReactNode): Story {
  return { group, name, shows, show: () => <main>{show()}</main>, answers: NOBODY };
}

function query(data: string | undefined, error: Error | null): UseQueryResult<string> {
  return { data, error, dataUpdatedAt: NOW_MS } as unknown as UseQueryResult<string>;
}

const AWAY = new Refused(503, ["The metadata database does not answer."]);
const GONE = new Refused(404, ["There is no job a."]);

export const PARTS: readonly Story[] = [
  ...(
    [
      ["loading", "", undefined, null],
      ["refused", "does not answer", undefined, AWAY],
      ["gone", "removed from the history", undefined, GONE],
      ["here", "what was answered", "what was answered", null],
      ["stale", "What stands here is from", "what was answered", AWAY],
    ] as const
  ).map(([name, shows, data, error]) =>
    part("Answered", name, shows, () => (
      <Answered query={query(data, error)}>{(found) => <p>{found}</p>}</Answered>
    )),
  ),
  part("Badge", "tones", "good", () =>
    TONES.map((tone) => (
      <Badge key={tone} tone={tone}>
        {tone}
      </Badge>
    )),
  ),
  ...Object.entries(NAMES).map(([name, text]) =>
    part("Copyable", name, "copy", () => <Copyable text={text} />),
  ),
  part("CopyText", "ready", "Copy as JSON", () => <CopyText text={() => "{}"} name="JSON" />),
  part("Facts", "full", "Running", () => (
    <Facts
      of={[
        ["Running", 3],
        ["Named", NAMES.long],
      ]}
    />
  )),
  part("Facts", "empty", "", () => <Facts of={[]} />),
  part("Filter", "typed", "Operator", () => <Filter label="Operator" text={NAMES.html} change={nothing} />),
  ...TONES.map((tone) =>
    part("Notice", tone, "rows", () => <Notice tone={tone}>{`rows ${NAMES.html}`}</Notice>),
  ),
  part("ReadFile", "nothing is read", "It is read here", () => (
    <ReadFile label="Plan" read={(text) => text} take={nothing} />
  )),
  part("Scrolls", "wide", NAMES.long, () => <Scrolls label="Wide">{NAMES.long}</Scrolls>),
  ...(
    [
      ["empty", []],
      ["one", [1]],
      ["full", [1, 5, 2, 8]],
      ["negative", [-1, -5]],
      ["not a number", [1, NaN, Infinity, 3]],
      ["huge", Array.from({ length: 300 }, (_, at) => at % 17)],
    ] as const
  ).map(([name, values]) => part("Spark", name, "", () => <Spark values={values} label="5 rows/s now" />)),
  part("Time", "known", "ago", () => (
    <>
      <Time ms={NOW_MS} /> <Ago ms={NOW_MS - 5_000} nowMs={NOW_MS} />
    </>
  )),
  part("Time", "unknown", "–", () => (
    <>
      <Time ms={null} /> <Ago ms={undefined} nowMs={NOW_MS} />
    </>
  )),
  part("Time", "of another clock", "ago", () => <Ago ms={NOW_MS + 60_000} nowMs={NOW_MS} />),
];

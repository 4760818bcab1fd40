import { useQuery } from "@tanstack/react-query";
import { useId, useState } from "react";

import { detailsQuery, useOverview } from "../../../api/queries";
import type { Wanted } from "../../../model/operations";
import {
  type Group,
  type Widths,
  changesOf,
  groupsOf,
  keyOf,
  slotsSentence,
  widthOf,
} from "../../../model/widths";
import { Answered } from "../../../parts/Answered";

interface Props {
  readonly job: string;
  readonly change: (wanted: Wanted | null) => void;
}

/** A slider for each vertex, or for those that always have the same parallelism. */
export function RescaleFields({ job, change }: Props) {
  const query = useQuery(detailsQuery(job));
  return (
    <Answered query={query}>{(details) => <Sliders groups={groupsOf(details)} change={change} />}</Answered>
  );
}

function Sliders({ groups, change }: { groups: readonly Group[]; change: Props["change"] }) {
  const [widths, setWidths] = useState<Widths>({});
  const { data } = useOverview();
  const set = (group: Group, value: number) => {
    const next = { ...widths, [keyOf(group)]: value };
    const parallelism = changesOf(groups, next);
    setWidths(next);
    change(Object.keys(parallelism).length === 0 ? null : { parallelism });
  };
  return (
    <fieldset className="widths">
      <legend>Subtasks</legend>
      {groups.map((group) => (
        <Slider key={keyOf(group)} group={group} width={widthOf(group, widths)} set={set} />
      ))}
      <p className="quiet" role="status">
        {slotsSentence(groups, widths, data?.free_slots ?? null)}
      </p>
    </fieldset>
  );
}

interface SliderProps {
  readonly group: Group;
  readonly width: number;
  readonly set: (group: Group, value: number) => void;
}

function Slider({ group, width, set }: SliderProps) {
  const name = useId();
  const range = { min: 1, max: group.most, value: width, "aria-labelledby": name };
  const changed = (value: number) => {
    if (Number.isFinite(value)) set(group, value);
  };
  return (
    <div className="width">
      <span id={name}>
        {group.names.map((one, index) => (
          <span key={one + String(index)}>
            {index > 0 && " + "}
            <bdi>{one}</bdi>
          </span>
        ))}{" "}
        <span className="quiet">
          {group.parallelism} now, {group.most} at most
        </span>
      </span>
      <input
        type="range"
        {...range}
        onChange={({ target }) => {
          changed(target.valueAsNumber);
        }}
      />
      <input
        type="number"
        {...range}
        onChange={({ target }) => {
          changed(target.valueAsNumber);
        }}
      />
    </div>
  );
}

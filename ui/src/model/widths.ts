import type { JobDetails } from "../api/schema";

/** Vertices that always have the same parallelism: a forward edge joins them. */
export interface Group {
  readonly ids: readonly string[];
  readonly names: readonly string[];
  readonly parallelism: number;
  readonly most: number;
  readonly slotSharing: readonly string[];
}

/** How wide somebody wants each group, by the id of its first vertex. */
export type Widths = Readonly<Record<string, number>>;

/** The groups in the order of the vertices. */
export function groupsOf({ vertices, plan }: Pick<JobDetails, "vertices" | "plan">): Group[] {
  const first = new Map(vertices.map(({ id }) => [id, id]));
  const root = (id: string): string => {
    const above = first.get(id) ?? id;
    return above === id ? id : root(above);
  };
  for (const node of plan.nodes) {
    for (const input of node.inputs ?? []) {
      if (input.ship_strategy === "FORWARD") first.set(root(node.id), root(input.id));
    }
  }
  const members = new Map<string, (typeof vertices)[number][]>();
  for (const vertex of vertices) {
    const key = root(vertex.id);
    members.set(key, [...(members.get(key) ?? []), vertex]);
  }
  return [...members.values()].map((all) => ({
    ids: all.map(({ id }) => id),
    names: all.map(({ name }) => name),
    parallelism: Math.max(...all.map(({ parallelism }) => parallelism)),
    most: Math.min(...all.map(({ maxParallelism }) => maxParallelism)),
    slotSharing: [...new Set(all.map(({ slotSharingGroupId }) => slotSharingGroupId))],
  }));
}

export function keyOf(group: Group): string {
  return group.ids[0] ?? "";
}

/** Of one group, as wanted or as it is. */
export function widthOf(group: Group, widths: Widths): number {
  return Math.min(group.most, Math.max(1, Math.round(widths[keyOf(group)] ?? group.parallelism)));
}

/** What is asked for: one vertex of each group that changes, the others follow. */
export function changesOf(groups: readonly Group[], widths: Widths): Record<string, number> {
  const changed = groups.filter((group) => widthOf(group, widths) !== group.parallelism);
  return Object.fromEntries(changed.map((group) => [keyOf(group), widthOf(group, widths)]));
}

/** Each slot sharing group needs as many slots as its widest vertex has subtasks. */
export function slotsOf(groups: readonly Group[], widths: Widths): number {
  const widest = new Map<string, number>();
  for (const group of groups) {
    for (const name of group.slotSharing) {
      widest.set(name, Math.max(widest.get(name) ?? 0, widthOf(group, widths)));
    }
  }
  return [...widest.values()].reduce((sum, one) => sum + one, 0);
}

/** Whether the slots are there. */
export function slotsSentence(groups: readonly Group[], widths: Widths, free: number | null): string {
  const [now, then] = [slotsOf(groups, {}), slotsOf(groups, widths)];
  const more = then - now;
  if (more <= 0)
    return more === 0
      ? `It needs ${then} slots, as now.`
      : `It needs ${then} slots, ${-more} fewer than now.`;
  const known =
    free === null
      ? ""
      : free >= more
        ? ` ${free} are free.`
        : ` ${free} are free: it waits for more, and stays as it is if none come.`;
  return `It needs ${then} slots, ${more} more than now.${known}`;
}

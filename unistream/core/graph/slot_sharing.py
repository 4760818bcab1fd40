"""Slot sharing groups: inheritance, resource profiles, and co-location."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final

from msgspec import structs

from unistream.base.errors import ConfigError
from unistream.base.ids import VertexId
from unistream.core.graph.components import joined
from unistream.model.graph import JobEdge, JobVertex
from unistream.model.resources import ResourceProfile
from unistream.model.stream_graph import DEFAULT_SLOT_SHARING_GROUP, StreamGraph, StreamNode

REGION_MARK: Final = "#"  # between "default" and the number of a part, in a batch job
GROUP_CHARS_MAX: Final = 200


def check_group_name(name: str) -> None:
    """Raises ConfigError if `name` is reserved for groups that the runtime makes."""
    reserved = DEFAULT_SLOT_SHARING_GROUP + REGION_MARK
    if name.startswith(reserved):
        raise ConfigError(
            f"slot sharing group {name!r}: names that begin with {reserved!r} are reserved for the parts of "
            "the default group in a batch job; choose another name"
        )


def resolve_groups(graph: StreamGraph, order: Sequence[int]) -> dict[int, str]:
    """The group of every node: its own, otherwise that of its inputs if they agree, otherwise ``default``."""
    nodes = {node.id: node for node in graph.nodes}
    inputs: dict[int, set[int]] = {node: set() for node in nodes}
    for edge in graph.edges:
        inputs[edge.target].add(edge.source)
    groups: dict[int, str] = {}
    for place in order:
        node = nodes[place]
        _check_registered(node, graph.registered_groups)
        if node.slot_sharing_group is not None:
            groups[place] = node.slot_sharing_group
        else:
            inherited = {groups[source] for source in inputs[place]}
            groups[place] = inherited.pop() if len(inherited) == 1 else DEFAULT_SLOT_SHARING_GROUP
    return groups


def _check_registered(node: StreamNode, registered: frozenset[str] | None) -> None:
    group = node.slot_sharing_group
    if group is None:
        return
    if not 0 < len(group) <= GROUP_CHARS_MAX or not group.isprintable():
        raise ConfigError(
            f"operator {node.name!r}: slot_sharing_group takes 1 to {GROUP_CHARS_MAX} printable characters, "
            f"not {group[:80]!r}"
        )
    check_group_name(group)
    if registered is None or group in registered or group == DEFAULT_SLOT_SHARING_GROUP:
        return
    near = difflib.get_close_matches(group, registered, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigError(
        f"operator {node.name!r}: slot sharing group {group!r} is unknown{hint}; registered are "
        f"{', '.join(map(repr, sorted(registered)))}: add it with register_slot_sharing_group(...), or "
        "change slot_sharing_group(...)"
    )


def split_by_region(vertices: Sequence[JobVertex], edges: Sequence[JobEdge]) -> list[JobVertex]:
    """Batch: vertices of the default group share slots only with those that they are pipelined with.

    Stages that are separated by stored exchanges do not run at the same time, so one slot for all of them has
    no advantage, and a stage can start with the slots that it needs itself.
    """
    pairs = [(edge.source, edge.target) for edge in edges if edge.partition.must_be_pipelined]
    stages = joined([vertex.id for vertex in vertices], pairs)
    stage_of = {vertex: stage for stage, members in enumerate(stages) for vertex in members}
    numbers: dict[int, int] = {}
    for vertex in vertices:
        if vertex.slot_sharing_group == DEFAULT_SLOT_SHARING_GROUP:
            numbers.setdefault(stage_of[vertex.id], len(numbers) + 1)
    if len(numbers) < 2:
        return list(vertices)
    return [
        structs.replace(vertex, slot_sharing_group=f"{DEFAULT_SLOT_SHARING_GROUP}{REGION_MARK}{number}")
        if vertex.slot_sharing_group == DEFAULT_SLOT_SHARING_GROUP
        and (number := numbers[stage_of[vertex.id]])
        else vertex
        for vertex in vertices
    ]


def group_profiles(graph: StreamGraph, vertices: Sequence[JobVertex]) -> dict[str, ResourceProfile]:
    """The profile of a slot of each group; parts of ``default`` have that of ``default``."""
    profiles = {name: profile for name, profile in graph.profiles.items() if not profile.is_unknown}
    default = profiles.get(DEFAULT_SLOT_SHARING_GROUP)
    parts = [
        vertex.slot_sharing_group
        for vertex in vertices
        if vertex.slot_sharing_group.startswith(DEFAULT_SLOT_SHARING_GROUP + REGION_MARK)
    ]
    if default is not None and parts:
        del profiles[DEFAULT_SLOT_SHARING_GROUP]
        profiles |= dict.fromkeys(parts, default)
    return profiles


def colocations(
    members: Sequence[tuple[VertexId, Sequence[StreamNode]]],
) -> tuple[tuple[VertexId, ...], ...]:
    """Vertices by the co-location group that their operators name, where there are at least two."""
    groups: dict[str, list[VertexId]] = {}
    for vertex, nodes in members:
        for name in dict.fromkeys(node.colocation_group for node in nodes):
            if name is not None:
                groups.setdefault(name, []).append(vertex)
    return tuple(tuple(vertices) for vertices in groups.values() if len(vertices) > 1)

"""The second half of `graph_check`: exchanges, slot sharing, co-location. Checks that depend on the cluster
(`check_profiles`, `check_measures`) are called by the Dispatcher. A refusal is a `ConfigError`, as there.
"""

from __future__ import annotations

import math
from typing import Final

from unistream.base.config import BATCH_SHUFFLE_MODE, RUNTIME_MODE, TASK_SLOTS, Configuration
from unistream.base.errors import ConfigError
from unistream.base.ids import VertexId
from unistream.core.graph.regions import check_regions
from unistream.core.graph.slot_sharing import REGION_MARK
from unistream.core.graph.topology import Topology
from unistream.core.memory import config_with, memory_plan
from unistream.core.resource import describe, profile_for, serves
from unistream.model.graph import JobGraph, JobType, JobVertex
from unistream.model.partition_type import PartitionType
from unistream.model.resources import ResourceProfile
from unistream.model.stream_graph import DEFAULT_SLOT_SHARING_GROUP

PRODUCED: Final = frozenset(
    {
        PartitionType.PIPELINED_BOUNDED,
        PartitionType.PIPELINED,
        PartitionType.BLOCKING,
        PartitionType.BLOCKING_REPORTED,
    }
)
"""Types of exchanges that workers implement."""


def check_exchanges(graph: JobGraph) -> None:
    """Stored exchanges have an end, and workers implement every type."""
    unbounded = _unbounded(graph)
    if graph.job_type is JobType.BATCH and unbounded:
        name = next(iter(unbounded.values()))
        raise ConfigError(f"{RUNTIME_MODE.key}=BATCH: source {name!r} never ends; use a bounded source")
    names = {vertex.id: vertex.name for vertex in graph.vertices}
    endless = endless_vertices(graph)
    for edge in graph.edges:
        where = f"exchange {names[edge.source]!r} -> {names[edge.target]!r}"
        if edge.partition not in PRODUCED:
            raise ConfigError(
                f"{where}: partitions of type {edge.partition.value} are not supported; make it "
                "exchange_mode(StreamExchangeMode.PIPELINED) or BATCH, or change "
                f"{BATCH_SHUFFLE_MODE.key}"
            )
        if edge.partition.is_blocking and edge.source in endless:
            raise ConfigError(
                f"{where}: it is blocking, so it is read when all of it was written, but source "
                f"{endless[edge.source]!r} before it never ends; make it "
                "exchange_mode(StreamExchangeMode.PIPELINED), or use a bounded source"
            )


def _unbounded(graph: JobGraph) -> dict[VertexId, str]:
    """Sources that never end -> their names. A bootstrap reads only what ends."""
    if graph.bootstrap is not None:
        return {}
    return {v.id: v.name for v in graph.vertices if v.source is not None and not v.source.bounded}


def endless_vertices(graph: JobGraph) -> dict[VertexId, str]:
    """Vertices that never end -> name of an unbounded source before them."""
    outputs: dict[VertexId, list[VertexId]] = {vertex.id: [] for vertex in graph.vertices}
    for edge in graph.edges:
        outputs[edge.source].append(edge.target)
    endless = _unbounded(graph)
    for vertex in graph.vertices:  # topological
        if vertex.id in endless:
            for target in outputs[vertex.id]:
                endless.setdefault(target, endless[vertex.id])
    return endless


def check_groups(graph: JobGraph) -> None:
    """Every profile is a valid amount, and belongs to a group with operators."""
    groups = {vertex.slot_sharing_group for vertex in graph.vertices}
    for vertex in graph.vertices:
        if not vertex.slot_sharing_group:
            raise ConfigError(
                f"operator {vertex.name!r} has an empty slot sharing group; change slot_sharing_group(...)"
            )
    for name, profile in graph.profiles.items():
        if name not in groups:
            raise ConfigError(
                f"slot sharing group {name!r} has a resource profile, but no operator is in it; the groups "
                f"of the job are {', '.join(map(repr, sorted(groups)))}; change slot_sharing_group(...) or "
                "register_slot_sharing_group(...)"
            )
        if not (math.isfinite(profile.cpu_cores) and profile.cpu_cores >= 0 and profile.memory_mb >= 0):
            raise ConfigError(
                f"slot sharing group {name!r}: {describe(profile)} is not a valid amount; "
                "change its SlotSharingGroup(...)"
            )


def check_regions_and_colocations(graph: JobGraph) -> None:
    """Regions can be started one after the other, and members of a co-location group have equal parallelism,
    their subtasks one region each, and one slot sharing group."""
    known = {vertex.id: vertex for vertex in graph.vertices}
    for members in graph.colocations:
        for member in members:
            if member not in known:
                raise ConfigError(f"a co-location group refers to vertex {member!r}, which does not exist")
    pairs = [(known[members[0]], known[member]) for members in graph.colocations for member in members[1:]]
    for first, second in pairs:
        if first.parallelism != second.parallelism:
            raise ConfigError(
                f"{_together(first, second)}: their parallelism is {first.parallelism} and "
                f"{second.parallelism}; make it equal with set_parallelism(...), or change "
                "co_location_group(...)"
            )
    check_regions(Topology.of(graph))
    for first, second in pairs:
        if first.slot_sharing_group != second.slot_sharing_group:
            raise ConfigError(
                f"{_together(first, second)}: their slot sharing groups are {first.slot_sharing_group!r} and "
                f"{second.slot_sharing_group!r}; make them one with slot_sharing_group(...), or change "
                "co_location_group(...)"
            )


def _together(first: JobVertex, second: JobVertex) -> str:
    return f"co-location of {first.name!r} and {second.name!r}"


def check_profiles(graph: JobGraph, share: ResourceProfile, largest: ResourceProfile, slots: int) -> None:
    """Some worker can have every slot that the job needs.

    Args:
        graph: A checked one.
        share: The configured profile of one slot; an unspecified part serves nothing.
        largest: The maximum slot of a worker that is started to measure; an unspecified part is no limit.
        slots: Of a worker, for the message."""
    for group, profile in graph.profiles.items():
        if serves(share, profile, strict=True) or profile.fits_in(largest):
            continue
        there = [describe(offer) for offer in dict.fromkeys((share, largest)) if not offer.is_unknown]
        raise ConfigError(
            f"operator {_operator_of(graph, group)!r}: slot sharing group {_plain(group)!r} needs "
            f"{describe(profile)} in one slot, and no worker can serve that: with {TASK_SLOTS.key}={slots} "
            f"a slot has at most {' or '.join(there)}; lower what its SlotSharingGroup(...) requests, lower "
            f"{TASK_SLOTS.key}, or make workers larger"
        )


def check_measures(graph: JobGraph, config: Configuration, share: ResourceProfile) -> None:
    """Workers can be started for every profile: the fixed parts of their memory leave room for the rest.

    Args:
        graph: A checked one.
        config: Of the cluster's workers.
        share: The configured profile of one slot."""
    for group, profile in graph.profiles.items():
        if serves(share, profile, strict=True):
            continue
        values = config_with(profile_for(profile, share), 1, config.to_dict())
        try:
            memory_plan(Configuration(values), 1)
        except ConfigError as error:
            raise ConfigError(
                f"operator {_operator_of(graph, group)!r}: slot sharing group {_plain(group)!r} needs "
                f"{describe(profile)} in one slot, and no worker of that size can be started: {error}; "
                "raise what its SlotSharingGroup(...) requests, or lower the cluster's options"
            ) from error


def _operator_of(graph: JobGraph, group: str) -> str:
    return next((vertex.name for vertex in graph.vertices if vertex.slot_sharing_group == group), "?")


def _plain(group: str) -> str:
    """The user's name: without the number of a part of the default group."""
    return DEFAULT_SLOT_SHARING_GROUP if group.startswith(DEFAULT_SLOT_SHARING_GROUP + REGION_MARK) else group

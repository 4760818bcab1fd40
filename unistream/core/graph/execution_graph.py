"""The third graph, for people and programs: subtasks with their attempts, partitions, and pipelined regions.

A description, made when somebody asks; the job itself runs by `core.topology` and `core.regions`, from
which it is read. Runs of indices stand for subtasks, so its size follows the number of vertices and regions,
not that of connected pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from unistream.base.ids import EdgeId, SubtaskId, VertexId
from unistream.core.graph.regions import Region, build_regions
from unistream.core.graph.topology import Link, Pattern, Topology
from unistream.model.graph import JobEdge, JobGraph, JobVertex, Ship
from unistream.model.partition_type import PartitionType

GROUPS_LISTED: Final = 16  # pairs of a pointwise edge that are written out; more are told by their sizes
EDGES_WITH_GROUPS: Final = 100  # edges whose groups are written out; of a larger job the first ones
REGIONS_LISTED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRun:
    """Consecutive subtasks of one vertex that are at the same attempt."""

    subtasks: range
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionVertex:
    """The subtasks of one vertex of the job."""

    vertex: JobVertex
    attempts: tuple[AttemptRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSizes:
    """How many producers and consumers the groups of an edge have, least and most of each."""

    groups: int
    producers: tuple[int, int]
    consumers: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionEdge:
    """The partitions between two vertices, one of each producer.

    Attributes:
        subpartitions: Least and most that one partition has: consumers that read it.
        sizes: Of its groups. Everybody on the one side of a group is connected to everybody on the other.
        groups: Producers and consumers of each group; None: they are too many to list.
    """

    id: EdgeId
    source: VertexId
    target: VertexId
    ship: Ship
    pattern: Pattern
    partition: PartitionType
    partitions: int
    subpartitions: tuple[int, int]
    sizes: GroupSizes
    groups: tuple[tuple[range, range], ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRegion:
    """Subtasks that are scheduled and restarted together, as runs of indices by vertex."""

    number: int
    size: int
    subtasks: Mapping[VertexId, tuple[range, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionGraph:
    """What a job becomes.

    Attributes:
        subtasks: How many there are.
        region_count: How many regions; `regions` are the first of them.
        region_sizes: Least and most subtasks of a region.
    """

    subtasks: int
    vertices: tuple[ExecutionVertex, ...]
    edges: tuple[ExecutionEdge, ...]
    region_count: int
    region_sizes: tuple[int, int]
    regions: tuple[ExecutionRegion, ...]


def execution_graph(
    graph: JobGraph, attempts: Mapping[SubtaskId, int] | None = None, *, regions: int = REGIONS_LISTED
) -> ExecutionGraph:
    """Describes a checked graph.

    Args:
        graph: The job.
        attempts: Where subtasks are; those that are not named are at their first attempt, number 0.
        regions: How many to list.
    """
    topology = Topology.of(graph)
    found = build_regions(topology)
    sizes = [len(region.subtasks) for region in found]
    return ExecutionGraph(
        subtasks=topology.size,
        vertices=tuple(
            ExecutionVertex(vertex=vertex, attempts=tuple(_attempt_runs(vertex, attempts or {})))
            for vertex in graph.vertices
        ),
        edges=tuple(
            _edge(topology, edge, link, lists=place < EDGES_WITH_GROUPS)
            for place, (edge, link) in enumerate(zip(graph.edges, topology.links, strict=True))
        ),
        region_count=len(found),
        region_sizes=(min(sizes), max(sizes)),
        regions=tuple(_region(region) for region in islice(found, regions)),
    )


def _attempt_runs(vertex: JobVertex, attempts: Mapping[SubtaskId, int]) -> Iterator[AttemptRun]:
    if not attempts:
        yield AttemptRun(subtasks=range(vertex.parallelism), attempt=0)
        return
    numbers = [attempts.get(SubtaskId(vertex.id, index), 0) for index in range(vertex.parallelism)]
    start = 0
    for index in range(1, vertex.parallelism + 1):
        if index == vertex.parallelism or numbers[index] != numbers[start]:
            yield AttemptRun(subtasks=range(start, index), attempt=numbers[start])
            start = index


def _edge(topology: Topology, edge: JobEdge, link: Link, *, lists: bool) -> ExecutionEdge:
    upstream, downstream = topology.parallelism[link.source], topology.parallelism[link.target]
    groups = topology.groups(link)
    sizes = GroupSizes(
        groups=groups, producers=_share(upstream, groups), consumers=_share(downstream, groups)
    )
    listed = None
    if lists and groups <= GROUPS_LISTED:
        parts = [topology.group(link, number) for number in range(groups)]
        listed = tuple((part.producers, part.consumers) for part in parts)
    return ExecutionEdge(
        id=edge.id,
        source=edge.source,
        target=edge.target,
        ship=edge.ship,
        pattern=link.pattern,
        partition=edge.partition,
        partitions=upstream,
        subpartitions=sizes.consumers,
        sizes=sizes,
        groups=listed,
    )


def _share(members: int, groups: int) -> tuple[int, int]:
    return members // groups, -(-members // groups)


def _region(region: Region) -> ExecutionRegion:
    indices: dict[VertexId, list[int]] = {}
    for subtask in region.subtasks:
        indices.setdefault(subtask.vertex, []).append(subtask.index)
    return ExecutionRegion(
        number=region.number,
        size=len(region.subtasks),
        subtasks={vertex: tuple(runs(found)) for vertex, found in indices.items()},
    )


def runs(indices: Iterable[int]) -> Iterator[range]:
    """Rising numbers as ranges without gaps.

    >>> list(runs([0, 1, 2, 5]))
    [range(0, 3), range(5, 6)]
    """
    current: range | None = None
    for index in indices:
        if current is not None and index == current.stop:
            current = range(current.start, index + 1)
            continue
        if current is not None:
            yield current
        current = range(index, index + 1)
    if current is not None:
        yield current

"""The third graph, for people and programs: subtasks, partitions, and pipelined regions.

A description; the job itself runs by `topology` and `regions`, from which it is read. Ranges of indices stand
for subtasks, so its size follows the number of vertices and regions, not that of connected pairs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from unistream.base.ids import VertexId
from unistream.core.graph.regions import Region, build_regions
from unistream.core.graph.topology import Link, Pattern, Topology
from unistream.model.graph import JobEdge, JobGraph

GROUPS_LISTED: Final = 16  # of a pointwise edge; if there are more, only their sizes are given
EDGES_WITH_GROUPS: Final = 100  # the first edges of a large job
REGIONS_LISTED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionEdge:
    """The partitions between two vertices, one of each producer.

    Attributes:
        partitions: How many.
        groups: How many. All producers of a group are connected to all its consumers.
        producers, consumers: Minimum and maximum in a group; a partition has a subpartition for each
            consumer.
        mapping: Producers and consumers of each group; None: there are too many to list.
    """

    edge: JobEdge
    pattern: Pattern
    partitions: int
    groups: int
    producers: tuple[int, int]
    consumers: tuple[int, int]
    mapping: tuple[tuple[range, range], ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionGraph:
    """What a job becomes.

    Attributes:
        subtasks: How many.
        region_count: How many; `regions` are the first of them.
        region_sizes: Minimum and maximum number of subtasks of a region.
    """

    subtasks: int
    edges: tuple[ExecutionEdge, ...]
    region_count: int
    region_sizes: tuple[int, int]
    regions: tuple[Region, ...]


def execution_graph(graph: JobGraph, *, regions: int = REGIONS_LISTED) -> ExecutionGraph:
    """Describes a checked graph, with at most so many `regions`."""
    topology = Topology.of(graph)
    found = build_regions(topology)
    sizes = [len(region.subtasks) for region in found]
    return ExecutionGraph(
        subtasks=topology.size,
        edges=tuple(
            _edge(topology, edge, link, lists=place < EDGES_WITH_GROUPS)
            for place, (edge, link) in enumerate(zip(graph.edges, topology.links, strict=True))
        ),
        region_count=len(found),
        region_sizes=(min(sizes), max(sizes)),
        regions=tuple(islice(found, regions)),
    )


def _edge(topology: Topology, edge: JobEdge, link: Link, *, lists: bool) -> ExecutionEdge:
    upstream, downstream = topology.parallelism[link.source], topology.parallelism[link.target]
    groups = topology.groups(link)
    mapping = None
    if lists and groups <= GROUPS_LISTED:
        parts = [topology.group(link, number) for number in range(groups)]
        mapping = tuple((part.producers, part.consumers) for part in parts)
    return ExecutionEdge(
        edge=edge,
        pattern=link.pattern,
        partitions=upstream,
        groups=groups,
        producers=(upstream // groups, -(-upstream // groups)),
        consumers=(downstream // groups, -(-downstream // groups)),
        mapping=mapping,
    )


def members(region: Region) -> dict[VertexId, list[range]]:
    """The subtasks of a region, as ranges of indices by vertex."""
    indices: dict[VertexId, list[int]] = {}
    for subtask in region.subtasks:
        indices.setdefault(subtask.vertex, []).append(subtask.index)
    return {vertex: ranges(found) for vertex, found in indices.items()}


def ranges(indices: Iterable[int]) -> list[range]:
    """Rising numbers as ranges without gaps.

    >>> ranges([0, 1, 2, 5])
    [range(0, 3), range(5, 6)]
    """
    found: list[range] = []
    for index in indices:
        start = found.pop().start if found and found[-1].stop == index else index
        found.append(range(start, index + 1))
    return found


def text(indices: range) -> str:
    """Indices of subtasks for people, both ends included.

    >>> text(range(0, 4)), text(range(3, 4))
    ('0-3', '3')
    """
    return str(indices.start) if len(indices) == 1 else f"{indices.start}-{indices.stop - 1}"

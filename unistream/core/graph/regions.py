"""Pipelined regions: what must run at the same time, hence what is scheduled and restarted together.

A logical region is a set of vertices that must-be-pipelined links connect. Each execution region is a part of
one logical region:

- any all-to-all link inside the logical region, of whatever type, makes all of it one region (FLINK-17330);
- otherwise regions are the subtasks that must-be-pipelined links connect; regions that wait for each other in
  a circle over the other links inside the logical region are merged.

A job with a circle of logical regions could never start; `check_regions` refuses it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unistream.base.errors import ConfigError
from unistream.base.ids import SubtaskId, VertexId
from unistream.core.graph.components import Labels, connected, strongly_connected
from unistream.core.graph.topology import ConsumedGroup, Link, Pattern, Topology

LogicalRegion = tuple[VertexId, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Subtasks that are scheduled and restarted together.

    Attributes:
        number: In topological order of their first subtasks.
        subtasks: In topological order of vertices, vertex by vertex.
    """

    number: int
    subtasks: tuple[SubtaskId, ...]


@dataclass(frozen=True, slots=True)
class RegionInput:
    """What a region reads of one group. `producers`: indices in `group.link.source` that are outside the
    region."""

    group: ConsumedGroup
    producers: Sequence[int]

    @property
    def is_whole(self) -> bool:
        """No producer of the group is in the region itself."""
        return len(self.producers) == len(self.group.producers)


class Regions:
    """A partition of all subtasks of a topology, in topological order."""

    def __init__(self, topology: Topology, labels: Labels) -> None:
        """`labels`: for each subtask number the same value as for all others of its region."""
        self.topology = topology
        _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        rank = np.empty(len(first), dtype=np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        self.numbers: list[int] = rank[inverse].tolist()
        members: list[list[SubtaskId]] = [[] for _ in range(len(first))]
        for region, subtask in zip(self.numbers, topology.all_subtasks(), strict=True):
            members[region].append(subtask)
        self._regions = [Region(number, tuple(found)) for number, found in enumerate(members)]
        self._inputs: dict[int, tuple[RegionInput, ...]] = {}
        self._whole: dict[tuple[int, int], RegionInput] = {}  # shared by all regions that read the group

    def __iter__(self) -> Iterator[Region]:
        return iter(self._regions)

    def __len__(self) -> int:
        return len(self._regions)

    def __getitem__(self, number: int) -> Region:
        return self._regions[number]

    def of(self, subtask: SubtaskId) -> Region:
        return self._regions[self.number_of(subtask.vertex, subtask.index)]

    def number_of(self, vertex: VertexId, index: int) -> int:
        return self.numbers[self.topology.first_numbers[vertex] + index]

    def numbers_of(self, vertex: VertexId, indices: range) -> dict[int, None]:
        """Numbers of the regions of several subtasks of `vertex`, each once."""
        first = self.topology.first_numbers[vertex]
        return dict.fromkeys(self.numbers[first + indices.start : first + indices.stop])

    def inputs(self, region: Region) -> tuple[RegionInput, ...]:
        """Groups that `region` reads and that are, completely or in part, produced outside of it."""
        found = self._inputs.get(region.number)
        if found is None:
            found = self._inputs[region.number] = tuple(self._find_inputs(region))
        return found

    def _find_inputs(self, region: Region) -> Iterator[RegionInput]:
        seen: set[tuple[int, int]] = set()
        topology = self.topology
        for subtask in region.subtasks:
            for link in topology.inputs[subtask.vertex]:
                if link.id in self._inner:
                    continue
                number = topology.group_of_consumer(link, subtask.index)
                key = (topology.link_numbers[link.id], number)
                if key not in seen:
                    seen.add(key)
                    found = self._outside(link, number, region.number)
                    if found.producers:
                        yield found

    def _outside(self, link: Link, number: int, region: int) -> RegionInput:
        if link.id in self._crossing:
            group = self.topology.group(link, number)
            return RegionInput(
                group, [i for i in group.producers if self.number_of(link.source, i) != region]
            )
        key = (self.topology.link_numbers[link.id], number)
        found = self._whole.get(key)
        if found is None:
            group = self.topology.group(link, number)
            found = self._whole[key] = RegionInput(group, group.producers)
        return found

    @cached_property
    def _inner(self) -> frozenset[str]:
        """Links inside a single region."""
        return frozenset(
            link.id
            for link in self.topology.links
            if self._around[link.source] == self._around[link.target] and len(self._around[link.source]) == 1
        )

    @cached_property
    def _crossing(self) -> frozenset[str]:
        """Links whose ends have a region in common, so that a group may be partly inside."""
        return frozenset(
            link.id
            for link in self.topology.links
            if not self._around[link.source].isdisjoint(self._around[link.target])
        )

    @cached_property
    def _around(self) -> dict[VertexId, frozenset[int]]:
        """Numbers of the regions of each vertex."""
        return {v: frozenset(self.numbers_of(v, range(n))) for v, n in self.topology.parallelism.items()}


def logical_regions(topology: Topology) -> tuple[LogicalRegion, ...]:
    """Vertices that must-be-pipelined links connect; members and regions in topological order."""
    places = {vertex: place for place, vertex in enumerate(topology.vertices)}
    glue = [link for link in topology.links if link.partition.must_be_pipelined]
    labels = connected(
        len(places),
        np.array([places[link.source] for link in glue], dtype=np.int64),
        np.array([places[link.target] for link in glue], dtype=np.int64),
    )
    found: dict[int, list[VertexId]] = {}
    for vertex, label in zip(topology.vertices, labels.tolist(), strict=True):
        found.setdefault(label, []).append(vertex)
    return tuple(tuple(members) for members in found.values())


def build_regions(topology: Topology, together: Collection[VertexId] = ()) -> Regions:
    """The regions that a job is scheduled and restarted by. `together`: vertices that are one, whatever is
    between them; no way leads from them to others and back."""
    labels = np.empty(topology.size, dtype=np.int64)
    for members in logical_regions(topology):
        inside = set(members)
        inner = [link for v in members for link in topology.inputs[v] if link.source in inside]
        numbers = np.concatenate([_numbers(topology, vertex) for vertex in members])
        if any(link.pattern is Pattern.ALL_TO_ALL for link in inner):
            labels[numbers] = numbers[0]
        else:
            labels[numbers] = divide(topology, inner)[numbers]
    if together:
        glued = np.concatenate([_numbers(topology, vertex) for vertex in together])
        labels[glued] = glued.min()
    regions = Regions(topology, labels)
    _check_colocations(regions)
    return regions


def singletons(topology: Topology) -> Regions:
    """Each subtask by itself, for strategies that schedule one at a time."""
    return Regions(topology, np.arange(topology.size, dtype=np.int64))


def region_circles(topology: Topology) -> tuple[tuple[LogicalRegion, ...], ...]:
    """Logical regions that wait for each other's results in a circle, so that none could ever start."""
    logical = logical_regions(topology)
    places = {vertex: place for place, members in enumerate(logical) for vertex in members}
    successors: list[list[int]] = [[] for _ in logical]
    for link in topology.links:
        if places[link.source] != places[link.target]:
            successors[places[link.source]].append(places[link.target])
    circles: dict[int, list[LogicalRegion]] = {}
    for members, component in zip(logical, strongly_connected(successors), strict=True):
        circles.setdefault(component, []).append(members)
    return tuple(tuple(found) for found in circles.values() if len(found) > 1)


def check_regions(topology: Topology) -> None:
    """Refuses a job whose regions could not be scheduled."""
    for circle in region_circles(topology):
        groups = " and ".join(f"({_names(topology, members)})" for members in circle)
        inside = {vertex for members in circle for vertex in members}
        closing = [
            f"{topology.name(link.source)!r} -> {topology.name(link.target)!r}"
            for link in topology.links
            if {link.source, link.target} <= inside and not link.partition.must_be_pipelined
        ]
        raise ConfigError(
            f"the job could never start: the pipelined regions {groups} wait for each other's results; "
            f"make these exchanges pipelined too, or the others blocking: {', '.join(closing)}"
        )
    if topology.colocations:
        build_regions(topology)


def _check_colocations(regions: Regions) -> None:
    topology = regions.topology
    for members in topology.colocations:
        for index in range(max((topology.parallelism[vertex] for vertex in members), default=0)):
            having = [vertex for vertex in members if index < topology.parallelism[vertex]]
            if len({regions.number_of(vertex, index) for vertex in having}) > 1:
                raise ConfigError(
                    f"vertices {_names(topology, having)} are strictly co-located, but their subtasks "
                    f"{index} are not in one pipelined region: connect them by pipelined exchanges, or "
                    "remove the co-location"
                )


def _names(topology: Topology, vertices: Iterable[VertexId]) -> str:
    return ", ".join(repr(topology.name(vertex)) for vertex in vertices)


def _numbers(topology: Topology, vertex: VertexId) -> Labels:
    first = topology.first_numbers[vertex]
    return np.arange(first, first + topology.parallelism[vertex], dtype=np.int64)


def divide(topology: Topology, links: Sequence[Link]) -> Labels:
    """A label of each subtask's region, by the subtask's number, when only `links` count."""
    glue = [link for link in links if link.partition.must_be_pipelined]
    rest = [link for link in links if not link.partition.must_be_pipelined]
    hubs = _Hubs(topology, glue)
    labels = connected(hubs.size, *hubs.edges())[: topology.size]
    return _merge_circles(topology, rest, labels) if rest else labels


def _merge_circles(topology: Topology, links: Sequence[Link], labels: Labels) -> Labels:
    """Merges regions on a circle of `links`."""
    hubs = _Hubs(topology, links)
    ends = np.concatenate([labels, np.arange(topology.size, hubs.size)])
    successors: list[list[int]] = [[] for _ in range(hubs.size)]
    for link in links:
        for node, hub in zip(*(side.tolist() for side in hubs.producers(link)), strict=True):
            successors[ends[node]].append(hub)
        for node, hub in zip(*(side.tolist() for side in hubs.consumers(link)), strict=True):
            successors[hub].append(int(ends[node]))
    components = np.array(strongly_connected(successors), dtype=np.int64)
    return components[labels]


class _Hubs:
    """Subtasks, and one more node for each group of some links, the hub, in place of its pairs."""

    def __init__(self, topology: Topology, links: Sequence[Link]) -> None:
        self._topology = topology
        self._links = links
        self.size = topology.size
        self._first: dict[str, int] = {}
        for link in links:
            self._first[link.id] = self.size
            self.size += topology.groups(link)

    def producers(self, link: Link) -> tuple[Labels, Labels]:
        """Producer subtask and hub, for all producers of `link`."""
        return self._side(link, link.source, link.target)

    def consumers(self, link: Link) -> tuple[Labels, Labels]:
        """Consumer subtask and hub, for all consumers of `link`."""
        return self._side(link, link.target, link.source)

    def edges(self) -> tuple[Labels, Labels]:
        """Every subtask with the hubs of its groups."""
        sides = [side(link) for link in self._links for side in (self.producers, self.consumers)]
        empty = np.empty(0, dtype=np.int64)
        left = np.concatenate([empty, *(nodes for nodes, _ in sides)])
        return left, np.concatenate([empty, *(hubs for _, hubs in sides)])

    def _side(self, link: Link, own: VertexId, other: VertexId) -> tuple[Labels, Labels]:
        mine, theirs = self._topology.parallelism[own], self._topology.parallelism[other]
        indices = np.arange(mine, dtype=np.int64)
        if link.pattern is Pattern.ALL_TO_ALL:
            groups = np.zeros(mine, dtype=np.int64)
        elif mine <= theirs:
            groups = indices
        elif own == link.source:
            groups = ((indices + 1) * theirs - 1) // mine  # consumers of a producer
        else:
            groups = indices * theirs // mine  # producers of a consumer
        return _numbers(self._topology, own), groups + self._first[link.id]

"""What scheduling and failover see of a job: vertices, how subtasks are connected, by which partitions.

Immutable; it never lists the pairs of an all-to-all edge. The subtasks of a link form groups: all producers
of a group feed all its consumers, and no others. An all-to-all link is one group; a pointwise link of U
producers and D consumers has min(U, D) groups. So each subtask is in exactly one group of each of its links,
and every result is a range of indices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain

from unistream.base.errors import ConfigError
from unistream.base.ids import EdgeId, PartitionId, SubtaskId, VertexId
from unistream.model.graph import JobGraph
from unistream.model.partition_type import PartitionType
from unistream.model.plan import pointwise_consumers, pointwise_producers


class Pattern(Enum):
    """How subtasks of two vertices are connected (Flink's DistributionPattern)."""

    POINTWISE = "POINTWISE"
    ALL_TO_ALL = "ALL_TO_ALL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """An edge of the job graph.

    Attributes:
        dataset: What the source produces for it. Links with the same one read the same partitions. None: the
            link has a data set of its own, named like the link.
    """

    id: EdgeId
    source: VertexId
    target: VertexId
    pattern: Pattern
    partition: PartitionType
    dataset: EdgeId | None = None

    @property
    def reads(self) -> EdgeId:
        """Name of the data set, as in `PartitionId.edge`."""
        return self.id if self.dataset is None else self.dataset


@dataclass(frozen=True, slots=True)
class ConsumedGroup:
    """Partitions of one link that become readable together.

    Attributes:
        producers: Indices in `link.source`.
        consumers: Indices in `link.target`; each of them reads all the producers.
        number: Place among the groups of the link.
    """

    link: Link
    producers: range
    consumers: range
    number: int


class Topology:
    """Vertices with their parallelism, and the links between them.

    `vertices` is in the topological order that Flink schedules in: sources first, then depth first along the
    links. Subtasks are numbered 0, 1, … in that order, vertex by vertex.

    Raises:
        ConfigError: the links form a cycle or name an unknown vertex.

    >>> a, b = VertexId("a"), VertexId("b")
    >>> link = Link(id=EdgeId("e"), source=a, target=b, pattern=Pattern.POINTWISE,
    ...             partition=PartitionType.BLOCKING)
    >>> topology = Topology([(a, 4), (b, 2)], [link])
    >>> topology.group(link, 1).producers
    range(2, 4)
    >>> topology.number(SubtaskId(b, 1))
    5
    """

    def __init__(
        self,
        vertices: Sequence[tuple[VertexId, int]],
        links: Iterable[Link],
        colocations: Sequence[tuple[VertexId, ...]] = (),
        names: Mapping[VertexId, str] | None = None,
    ) -> None:
        given = dict(vertices)
        self.names: Mapping[VertexId, str] = names or {}
        self.links = tuple(links)
        self.colocations = tuple(colocations)
        inputs: dict[VertexId, list[Link]] = {vertex: [] for vertex in given}
        outputs: dict[VertexId, list[Link]] = {vertex: [] for vertex in given}
        for link in self.links:
            if link.source not in given or link.target not in given:
                raise ConfigError(f"edge {link.id!r} refers to a vertex that does not exist")
            inputs[link.target].append(link)
            outputs[link.source].append(link)
        self.inputs: dict[VertexId, tuple[Link, ...]] = {v: tuple(found) for v, found in inputs.items()}
        self.outputs: dict[VertexId, tuple[Link, ...]] = {v: tuple(found) for v, found in outputs.items()}
        self.vertices: tuple[VertexId, ...] = self._sorted()
        self.parallelism: dict[VertexId, int] = {vertex: given[vertex] for vertex in self.vertices}
        self.link_numbers: dict[EdgeId, int] = {link.id: number for number, link in enumerate(self.links)}
        self.first_numbers: dict[VertexId, int] = {}
        self.size = 0
        for vertex in self.vertices:
            self.first_numbers[vertex] = self.size
            self.size += self.parallelism[vertex]

    @classmethod
    def of(cls, graph: JobGraph) -> Topology:
        """What `graph` looks like; each edge has a data set of its own."""
        return cls(
            [(vertex.id, vertex.parallelism) for vertex in graph.vertices],
            [
                Link(
                    id=edge.id,
                    source=edge.source,
                    target=edge.target,
                    pattern=Pattern.POINTWISE if edge.ship.is_pointwise else Pattern.ALL_TO_ALL,
                    partition=edge.partition,
                )
                for edge in graph.edges
            ],
            graph.colocations,
            {vertex.id: vertex.name for vertex in graph.vertices},
        )

    def name(self, vertex: VertexId) -> str:
        """The name of a vertex for people."""
        return self.names.get(vertex, vertex)

    def number(self, subtask: SubtaskId) -> int:
        """Place of `subtask` in topological order."""
        return self.first_numbers[subtask.vertex] + subtask.index

    def subtasks(self, vertex: VertexId) -> list[SubtaskId]:
        return [SubtaskId(vertex, index) for index in range(self.parallelism[vertex])]

    def all_subtasks(self) -> list[SubtaskId]:
        """All subtasks in topological order, vertex by vertex."""
        return [subtask for vertex in self.vertices for subtask in self.subtasks(vertex)]

    def producers(self, link: Link, consumer: int) -> range:
        """Producer indices of `link` that consumer subtask `consumer` reads."""
        upstream = self.parallelism[link.source]
        if link.pattern is Pattern.ALL_TO_ALL:
            return range(upstream)
        return pointwise_producers(consumer, upstream, self.parallelism[link.target])

    def consumers(self, link: Link, producer: int) -> range:
        """Consumer indices of `link` that producer subtask `producer` feeds."""
        downstream = self.parallelism[link.target]
        if link.pattern is Pattern.ALL_TO_ALL:
            return range(downstream)
        return pointwise_consumers(producer, self.parallelism[link.source], downstream)

    def groups(self, link: Link) -> int:
        """How many groups `link` has."""
        if link.pattern is Pattern.ALL_TO_ALL:
            return 1
        return min(self.parallelism[link.source], self.parallelism[link.target])

    def group(self, link: Link, number: int) -> ConsumedGroup:
        """Group `number` of `link`."""
        if self.parallelism[link.source] >= self.parallelism[link.target]:
            consumers = self.consumers(link, self.producers(link, number).start)
            return ConsumedGroup(link, self.producers(link, number), consumers, number)
        producers = self.producers(link, self.consumers(link, number).start)
        return ConsumedGroup(link, producers, self.consumers(link, number), number)

    def group_of_producer(self, link: Link, producer: int) -> int:
        """Number of the group that producer subtask `producer` feeds."""
        if link.pattern is Pattern.ALL_TO_ALL:
            return 0
        if self.parallelism[link.source] < self.parallelism[link.target]:
            return producer
        return self.consumers(link, producer).start

    def group_of_consumer(self, link: Link, consumer: int) -> int:
        """Number of the group that consumer subtask `consumer` reads."""
        if link.pattern is Pattern.ALL_TO_ALL:
            return 0
        if self.parallelism[link.source] >= self.parallelism[link.target]:
            return consumer
        return self.producers(link, consumer).start

    def produced(self, subtask: SubtaskId) -> tuple[PartitionId, ...]:
        """What `subtask` produces: one partition of each data set of its vertex."""
        datasets = dict.fromkeys(link.reads for link in self.outputs[subtask.vertex])
        return tuple(PartitionId(subtask, dataset) for dataset in datasets)

    def _sorted(self) -> tuple[VertexId, ...]:
        """Vertices in Flink's order: those without inputs, then depth first along their data sets, each
        vertex as soon as the last of its producers is placed."""
        waiting = {vertex: len(links) for vertex, links in self.inputs.items()}
        order: list[VertexId] = []

        def place(vertex: VertexId) -> None:
            order.append(vertex)
            for link in self.outputs[vertex]:
                waiting[link.target] -= 1

        placed = {vertex for vertex, inputs in waiting.items() if inputs == 0}
        sources = [vertex for vertex in waiting if vertex in placed]
        for source in sources:
            place(source)
        for source in sources:
            stack = [self._targets(source)]
            while stack:
                vertex = next(stack[-1], None)
                if vertex is None:
                    stack.pop()
                elif waiting[vertex] == 0 and vertex not in placed:
                    placed.add(vertex)
                    place(vertex)
                    stack.append(self._targets(vertex))
        stuck = [repr(self.name(vertex)) for vertex in waiting if vertex not in placed]
        if stuck:
            raise ConfigError(f"operators {', '.join(stuck)} form or follow a cycle: a job graph has none")
        return tuple(order)

    def _targets(self, vertex: VertexId) -> Iterator[VertexId]:
        """Consumers of `vertex`, data set by data set."""
        datasets: dict[EdgeId, list[VertexId]] = {}
        for link in self.outputs[vertex]:
            datasets.setdefault(link.reads, []).append(link.target)
        return chain.from_iterable(datasets.values())

"""What scheduling and failover see of a job: vertices, how subtasks are connected, by which partitions.

A picture that never changes and never lists the pairs of an all-to-all edge: every question is answered for
one subtask or one partition, as a range of indices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

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
    """An edge of the job graph."""

    id: EdgeId
    source: VertexId
    target: VertexId
    pattern: Pattern
    partition: PartitionType


@dataclass(frozen=True, slots=True)
class ConsumedGroup:
    """Partitions of one link that become readable together: producers `producers` of `link.source`."""

    link: Link
    producers: range


class Topology:
    """Vertices in topological order with their parallelism, and the links between them.

    >>> a, b = VertexId("a"), VertexId("b")
    >>> link = Link(id=EdgeId("e"), source=a, target=b, pattern=Pattern.POINTWISE,
    ...             partition=PartitionType.BLOCKING)
    >>> topology = Topology([(a, 4), (b, 2)], [link])
    >>> topology.consumed(SubtaskId(b, 1))[0].producers
    range(2, 4)
    """

    def __init__(
        self,
        vertices: Sequence[tuple[VertexId, int]],
        links: Iterable[Link],
        colocations: Sequence[tuple[VertexId, ...]] = (),
    ) -> None:
        self.parallelism = dict(vertices)
        self.vertices: tuple[VertexId, ...] = tuple(self.parallelism)
        self.links = tuple(links)
        self.colocations = tuple(colocations)
        self.inputs: dict[VertexId, tuple[Link, ...]] = {
            vertex: tuple(link for link in self.links if link.target == vertex) for vertex in self.vertices
        }
        self.outputs: dict[VertexId, tuple[Link, ...]] = {
            vertex: tuple(link for link in self.links if link.source == vertex) for vertex in self.vertices
        }

    @classmethod
    def of(cls, graph: JobGraph) -> Topology:
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
        )

    def subtasks(self, vertex: VertexId) -> list[SubtaskId]:
        return [SubtaskId(vertex, index) for index in range(self.parallelism[vertex])]

    def all_subtasks(self) -> list[SubtaskId]:
        """In topological order, vertex by vertex."""
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

    def consumed(self, subtask: SubtaskId) -> tuple[ConsumedGroup, ...]:
        """What `subtask` reads, link by link."""
        return tuple(
            ConsumedGroup(link, self.producers(link, subtask.index)) for link in self.inputs[subtask.vertex]
        )

    def produced(self, subtask: SubtaskId) -> tuple[PartitionId, ...]:
        """What `subtask` produces, link by link."""
        return tuple(PartitionId(subtask, link.id) for link in self.outputs[subtask.vertex])

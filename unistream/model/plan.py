"""The physical plan: subtasks of every vertex, and which channel each of them reads and writes.

Pointwise edges (forward, rescale) connect contiguous groups as Flink does: with U producers and D
consumers, consumer i reads producers ``[i*U div D, (i+1)*U div D)``, or the single one ``i*U div D`` when
U < D. All-to-all edges connect everyone; the subpartition that a consumer reads is its place among the
consumers of that producer. `GLOBAL` has a channel to every consumer (so that events reach them all) and rows
on the first one only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from unistream.base.ids import AttemptId, EdgeId, SubtaskId, TaskManagerId, VertexId
from unistream.model.graph import JobEdge, JobGraph
from unistream.model.messages import ChannelDescriptor, GateDescriptor, PartitionDescriptor


@dataclass(frozen=True, slots=True)
class Place:
    """Where a subtask runs: its TaskManager and that one's Flight location."""

    task_manager: TaskManagerId
    address: str


NOWHERE: Final = Place(TaskManagerId(""), "")


@dataclass(frozen=True, slots=True)
class Channel:
    """One subpartition of one producer, as one consumer reads it."""

    edge: EdgeId
    producer: SubtaskId
    subpartition: int


def pointwise_producers(consumer: int, producers: int, consumers: int) -> range:
    """Producers that consumer subtask `consumer` reads.

    >>> [list(pointwise_producers(i, 3, 2)) for i in range(2)]
    [[0], [1, 2]]
    """
    first = consumer * producers // consumers
    if producers < consumers:
        return range(first, first + 1)
    return range(first, (consumer + 1) * producers // consumers)


def pointwise_consumers(producer: int, producers: int, consumers: int) -> range:
    """Consumers that read producer subtask `producer`; the inverse of `pointwise_producers`.

    >>> [list(pointwise_consumers(p, 2, 3)) for p in range(2)]
    [[0, 1], [2]]
    """
    after = -(-(producer + 1) * consumers // producers)  # first i with i*U div D > producer
    if producers < consumers:
        return range(-(-producer * consumers // producers), after)
    return range(after - 1, after)


class ExecutionPlan:
    """Subtasks and channels of a valid graph; a picture that never changes."""

    def __init__(self, graph: JobGraph) -> None:
        self.graph = graph
        self.subtasks: tuple[SubtaskId, ...] = tuple(
            SubtaskId(vertex.id, index) for vertex in graph.vertices for index in range(vertex.parallelism)
        )
        self._vertices = {vertex.id: vertex for vertex in graph.vertices}
        self._inputs: dict[VertexId, list[JobEdge]] = {vertex.id: [] for vertex in graph.vertices}
        self._outputs: dict[VertexId, list[JobEdge]] = {vertex.id: [] for vertex in graph.vertices}
        for edge in graph.edges:
            self._inputs[edge.target].append(edge)
            self._outputs[edge.source].append(edge)

    def producers(self, edge: JobEdge, consumer: int) -> range:
        """Producer subtasks of `edge` that subtask `consumer` of its target reads."""
        upstream = self._vertices[edge.source].parallelism
        if edge.ship.is_pointwise:
            return pointwise_producers(consumer, upstream, self._vertices[edge.target].parallelism)
        return range(upstream)

    def consumers(self, edge: JobEdge, producer: int) -> range:
        """Consumer subtasks of `edge` that subtask `producer` of its source feeds."""
        downstream = self._vertices[edge.target].parallelism
        if edge.ship.is_pointwise:
            return pointwise_consumers(producer, self._vertices[edge.source].parallelism, downstream)
        return range(downstream)

    def input_edges(self, vertex: VertexId) -> tuple[JobEdge, ...]:
        return tuple(self._inputs[vertex])

    def channels(self, subtask: SubtaskId, input_index: int) -> tuple[Channel, ...]:
        """Channels of one logical input, edge by edge, then producer by producer."""
        return tuple(
            Channel(
                edge.id, SubtaskId(edge.source, producer), self.consumers(edge, producer).index(subtask.index)
            )
            for edge in self._inputs[subtask.vertex]
            if edge.input_index == input_index
            for producer in self.producers(edge, subtask.index)
        )

    def gates(
        self,
        subtask: SubtaskId,
        attempts: Mapping[SubtaskId, AttemptId],
        places: Mapping[SubtaskId, Place],
    ) -> tuple[GateDescriptor, ...]:
        """What `subtask` reads, given who runs where; one gate for each logical input. A producer that runs
        nowhere gets no address."""

        def describe(channel: Channel) -> ChannelDescriptor:
            place = places.get(channel.producer, NOWHERE)
            return ChannelDescriptor(
                producer=attempts[channel.producer],
                edge=channel.edge,
                subpartition=channel.subpartition,
                task_manager=place.task_manager,
                address=place.address,
            )

        return tuple(
            GateDescriptor(
                input_index=index,
                channels=tuple(describe(channel) for channel in self.channels(subtask, index)),
            )
            for index in range(self._vertices[subtask.vertex].inputs)
        )

    def partitions(self, subtask: SubtaskId) -> tuple[PartitionDescriptor, ...]:
        """What `subtask` produces: one partition for each outgoing edge."""
        return tuple(
            PartitionDescriptor(
                edge=edge.id,
                ship=edge.ship,
                consumers=tuple(self.consumers(edge, subtask.index)),
                consumer_parallelism=self._vertices[edge.target].parallelism,
                consumer_max_parallelism=self._vertices[edge.target].max_parallelism,
                key_columns=edge.key_columns,
                type=edge.partition,
                committables=edge.committables,
            )
            for edge in self._outputs[subtask.vertex]
        )

"""The physical plan: which channel each subtask reads and which partitions it writes.

The subpartition that a consumer reads is its place among the consumers of that producer. `GLOBAL` has a
channel to every consumer, so that events reach all of them, and rows on the first one only.
"""

from __future__ import annotations

from collections.abc import Mapping

from unistream.base.ids import AttemptId, SubtaskId, VertexId
from unistream.core.graph.topology import Topology
from unistream.model.columns.key_buckets import bucket_count
from unistream.model.deployment import ChannelDescriptor, GateDescriptor, PartitionDescriptor
from unistream.model.graph import JobEdge, JobGraph
from unistream.model.partition_type import PartitionType
from unistream.model.plan import NOWHERE, TaskManagerLocation, subtasks_of


class ExecutionPlan:
    """Subtasks and channels of a valid graph; immutable."""

    def __init__(self, graph: JobGraph) -> None:
        self.graph = graph
        self.topology = Topology.of(graph)
        self.subtasks = subtasks_of(graph)
        self._vertices = {vertex.id: vertex for vertex in graph.vertices}
        self._edges = {edge.id: edge for edge in graph.edges}
        self._links = {link.id: link for link in self.topology.links}

    def producers(self, edge: JobEdge, consumer: int) -> range:
        """Producer subtasks of `edge` that subtask `consumer` of its target reads."""
        return self.topology.producers(self._links[edge.id], consumer)

    def consumers(self, edge: JobEdge, producer: int) -> range:
        """Consumer subtasks of `edge` that subtask `producer` of its source feeds."""
        return self.topology.consumers(self._links[edge.id], producer)

    def input_edges(self, vertex: VertexId) -> tuple[JobEdge, ...]:
        return tuple(self._edges[link.id] for link in self.topology.inputs[vertex])

    def gates(
        self,
        subtask: SubtaskId,
        attempts: Mapping[SubtaskId, AttemptId],
        places: Mapping[SubtaskId, TaskManagerLocation],
    ) -> tuple[GateDescriptor, ...]:
        """What `subtask` reads: one gate for each logical input, with its channels edge by edge, then
        producer by producer. A producer without a place has no address."""
        inputs: list[list[ChannelDescriptor]] = [[] for _ in range(self._vertices[subtask.vertex].inputs)]
        committables = {edge.input_index for edge in self.input_edges(subtask.vertex) if edge.committables}
        for edge in self.input_edges(subtask.vertex):
            for index in self.producers(edge, subtask.index):
                producer = SubtaskId(edge.source, index)
                place = places.get(producer, NOWHERE)
                channel = ChannelDescriptor(
                    producer=attempts[producer],
                    edge=edge.id,
                    subpartition=self.consumers(edge, index).index(subtask.index),
                    task_manager=place.task_manager,
                    address=place.address,
                )
                inputs[edge.input_index].append(channel)
        return tuple(
            GateDescriptor(input_index=i, channels=tuple(found), committables=i in committables)
            for i, found in enumerate(inputs)
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
                buckets=_buckets(edge, self._vertices[edge.target].parallelism),
            )
            for edge in (self._edges[link.id] for link in self.topology.outputs[subtask.vertex])
        )


def _buckets(edge: JobEdge, consumers: int) -> int:
    return bucket_count(consumers) if edge.sorted and edge.partition is PartitionType.BLOCKING else 0

"""Checkpoints of a streaming job with stored (blocking) exchanges. Pure.

Barriers do not pass a stored exchange, so a snapshot can only be taken on one side of it:

    producers run ─► finished ─► consumers read what is stored ─► all of it is read ─► checkpoints begin
    └────────────── no snapshot: BLOCKING_OUTPUT_EXIST ────────────────────────────┘

- Tasks before a stored exchange end without a checkpoint, since there is none while they run.
- In a snapshot the producers have finished, and their rows have been processed by the consumers. There are no
  positions inside a stored partition.
- So from the first completed checkpoint on those partitions are not read again: they are deleted, the loss of
  their worker restarts no task, and a consumer that restarts finds its stored inputs at their end.
- Before the first checkpoint consumers start from scratch and read from the beginning, as in batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from unistream.base.ids import EdgeId, PartitionId, VertexId
from unistream.core.execution.executions import Execution
from unistream.core.execution.partition_tracker import PartitionTracker
from unistream.core.execution.reported_results import ReportedResults
from unistream.model.deployment import ChannelDescriptor, GateDescriptor
from unistream.model.execution_state import ExecutionState
from unistream.model.graph import JobGraph
from unistream.model.stored_rows import StoredRows


class StoredExchanges:
    """The stored exchanges of one graph. `rows`: where an engine has stored partitions, kept by others."""

    def __init__(
        self,
        graph: JobGraph,
        tracker: PartitionTracker,
        reported: ReportedResults,
        rows: Mapping[PartitionId, StoredRows],
    ) -> None:
        self._tracker = tracker
        self._reported = reported
        self._rows = rows
        self._kept: frozenset[EdgeId] = frozenset(e.id for e in graph.edges if e.partition.is_reported)
        self._edges: frozenset[EdgeId] = frozenset(e.id for e in graph.edges if e.partition.is_blocking)
        self._readers = frozenset(e.target for e in graph.edges if e.id in self._edges)
        self._writers = frozenset(e.source for e in graph.edges if e.id in self._edges)
        self._before = vertices_before(graph, self._writers)

    def __bool__(self) -> bool:
        return bool(self._edges)

    def may_checkpoint(self, vertex: VertexId) -> bool:
        """False: its tasks end before there can be a checkpoint, and do not wait for one."""
        return vertex not in self._before

    def is_in_the_way(self, execution: Execution) -> bool:
        """This task prevents a snapshot."""
        if execution.state is not ExecutionState.RUNNING:
            return False
        vertex = execution.attempt.vertex
        return vertex in self._writers or (vertex in self._readers and not execution.inputs_read)

    def gates(self, gates: Sequence[GateDescriptor]) -> tuple[GateDescriptor, ...]:
        return tuple(
            structs.replace(gate, channels=tuple(self._channel(channel) for channel in gate.channels))
            for gate in gates
        )

    def _channel(self, channel: ChannelDescriptor) -> ChannelDescriptor:
        if channel.edge in self._edges:
            partition = PartitionId(channel.producer.subtask, channel.edge)
            channel = structs.replace(
                channel,
                stored=True,
                ended=self._tracker.has_passed(partition),
                rows=self._rows.get(partition),
            )
        if channel.edge in self._kept:
            partition = PartitionId(channel.producer.subtask, channel.edge)
            content = self._reported.content(partition, channel.subpartition)
            return structs.replace(channel, stored=True, content=content)
        assert channel.address or channel.is_here, f"{channel.producer} is read and has no place"
        return channel


def vertices_before(graph: JobGraph, vertices: frozenset[VertexId]) -> frozenset[VertexId]:
    """`vertices` and all that precede them."""
    found = set(vertices)
    grown = True
    while grown:
        more = {edge.source for edge in graph.edges if edge.target in found} - found
        found |= more
        grown = bool(more)
    return frozenset(found)

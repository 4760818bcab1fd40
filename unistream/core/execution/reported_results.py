"""Committables of a BATCH job: its writers report them, the master keeps them, committers get them. Pure.

    level 0: sources, …, writers run ─► all have finished: sealed ─► level 1: committers start ─► …
    └─ may run again ──────────────┘   └─ never runs again: its outputs cannot be lost

A vertex is one level above another if the master keeps what is between them (`PartitionType.is_reported`). A
level is sealed when every task up to it has finished and none of them is waiting for a restart; only then
what it reported can be read. So before the first commit it is fixed what all sinks of the job commit, and a
restart, regional or of the whole job, only ever starts what is above the sealed levels.

    reported ─► readable (its level is sealed; for good)
       └──────► dropped: its producer restarts
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from unistream.base.errors import ConfigError, CorruptSnapshot
from unistream.base.ids import AttemptId, EdgeId, LineageId, PartitionId, SubtaskId, VertexId
from unistream.base.limits import MIB, REPORTED_BYTES_MAX, REPORTED_JOB_BYTES_MAX
from unistream.core.graph import Link, Topology
from unistream.model.messages import ReportedPartition, TaskFailure
from unistream.model.stored_job import Sealed, SealedCommittables

TOO_LARGE_KIND: Final = "TooManyCommittables"


class ReportedResults:
    """The reported committables of one job graph.

    Raises:
        ConfigError: a vertex reads committables together with other rows.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._links = tuple(link for link in topology.links if link.partition.is_reported)
        self._levels = levels(topology)
        self._left = defaultdict[int, set[SubtaskId]](set)  # level -> tasks that have not finished for good
        for subtask in topology.all_subtasks() if self._links else ():
            self._left[self._levels[subtask.vertex]].add(subtask)
        self._sealed = 0  # number of sealed levels
        self._contents: dict[PartitionId, tuple[bytes, ...]] = {}
        self._bytes = defaultdict[tuple[EdgeId, int], int](int)  # (link, consumer) -> size of what it reads
        self._total = 0

    def __bool__(self) -> bool:
        return bool(self._links)

    # --- queries ----------------------------------------------------------------------------------

    def exists(self, partition: PartitionId) -> bool:
        """Its producer has reported it, and does not run again."""
        return partition in self._contents

    def is_readable(self, partition: PartitionId) -> bool:
        """It exists, and its consumers may start."""
        return partition in self._contents and self.is_settled(partition.producer)

    def is_settled(self, subtask: SubtaskId) -> bool:
        """It has finished and never runs again, whatever fails."""
        return self._levels[subtask.vertex] < self._sealed

    def content(self, partition: PartitionId, subpartition: int) -> bytes:
        """What one consumer reads of a readable partition."""
        assert self.is_readable(partition), f"{partition} is read before its level is sealed"
        return self._contents[partition][subpartition]

    @property
    def settled(self) -> frozenset[SubtaskId]:
        """All tasks that have finished and never run again."""
        return frozenset(subtask for subtask in self._topology.all_subtasks() if self.is_settled(subtask))

    def sealed(self, lineage: LineageId) -> Sealed:
        """What another leader needs to go on behind the sealed levels."""
        needed = [link for link in self._links if self._levels[link.target] >= self._sealed]
        found = [
            SealedCommittables(
                vertex=link.source, subtask=producer.index, edge=link.id, contents=self._contents[partition]
            )
            for link in needed
            for producer in self._topology.subtasks(link.source)
            if self.is_readable(partition := PartitionId(producer, link.id))
        ]
        widths = {vertex: len(self._topology.subtasks(vertex)) for vertex in self._topology.vertices}
        return Sealed(lineage=lineage, parallelism=widths, levels=self._sealed, partitions=tuple(found))

    def restore(self, sealed: Sealed) -> None:
        """Begins behind the levels that an earlier leader has sealed.

        Raises:
            CorruptSnapshot: it is not of this graph.
        """
        for one in sealed.partitions:
            self._contents[PartitionId(SubtaskId(one.vertex, one.subtask), one.edge)] = one.contents
        self._sealed = sealed.levels
        for level in range(sealed.levels):
            self._left[level].clear()
        if self.sealed(sealed.lineage) != sealed or not 0 < sealed.levels <= max(self._left, default=0):
            raise CorruptSnapshot("what the BATCH job is to commit is not of its graph")

    # --- events -----------------------------------------------------------------------------------

    def reported(self, attempt: AttemptId, partitions: Sequence[ReportedPartition]) -> TaskFailure | None:
        """The current attempt has finished with these partitions. Returns its failure if it cannot be
        accepted: nothing has been committed then."""
        subtask = attempt.subtask
        assert not self.is_settled(subtask), f"{attempt} has finished after its level was sealed"
        found = {partition.edge: partition.contents for partition in partitions}
        self._drop(subtask)
        largest = 0
        for link in self._outputs(subtask):
            contents = found.get(link.id)
            consumers = self._topology.consumers(link, subtask.index)
            if contents is None or len(contents) != len(consumers):
                text = f"{attempt} has finished without the committables of {self._title(link)}"
                return TaskFailure(kind="ProtocolError", message=text, recoverable=False)
            self._contents[PartitionId(subtask, link.id)] = contents
            for consumer, content in zip(consumers, contents, strict=True):
                self._bytes[link.id, consumer] += len(content)
                self._total += len(content)
                largest = max(largest, self._bytes[link.id, consumer])
        return self._too_large(largest)

    def finished(self, subtask: SubtaskId) -> list[SubtaskId]:
        """It is FINISHED. Returns the producers whose partitions have become readable. The last level is not
        sealed: nothing reads what it reports."""
        if not self._links:
            return []
        self._left[self._levels[subtask.vertex]].discard(subtask)
        before = self._sealed
        while self._sealed < max(self._left) and not self._left[self._sealed]:
            self._sealed += 1
        return [
            producer
            for vertex in dict.fromkeys(link.source for link in self._links)
            if before <= self._levels[vertex] < self._sealed
            for producer in self._topology.subtasks(vertex)
        ]

    def will_restart(self, subtasks: Iterable[SubtaskId]) -> None:
        """They run again later, also those that have finished."""
        for subtask in subtasks if self._links else ():
            assert not self.is_settled(subtask), f"{subtask} would run again after its level was sealed"
            self._left[self._levels[subtask.vertex]].add(subtask)
            self._drop(subtask)

    # --- steps ------------------------------------------------------------------------------------

    def _outputs(self, subtask: SubtaskId) -> list[Link]:
        return [link for link in self._topology.outputs[subtask.vertex] if link.partition.is_reported]

    def _drop(self, subtask: SubtaskId) -> None:
        for link in self._outputs(subtask):
            contents = self._contents.pop(PartitionId(subtask, link.id), ())
            for consumer, content in zip(
                self._topology.consumers(link, subtask.index), contents, strict=False
            ):
                self._bytes[link.id, consumer] -= len(content)
                self._total -= len(content)

    def _too_large(self, largest: int) -> TaskFailure | None:
        if largest <= REPORTED_BYTES_MAX and self._total <= REPORTED_JOB_BYTES_MAX:
            return None
        text = (
            f"the sinks of this BATCH job have {self._total} B of committables so far, {largest} B for one "
            f"committer; the JobManager keeps at most {REPORTED_JOB_BYTES_MAX // MIB} MiB, and "
            f"{REPORTED_BYTES_MAX // MIB} MiB for one committer. Nothing was committed. Write fewer and "
            "larger files, divide the job, or run it with execution.runtime-mode=STREAMING and checkpoints"
        )
        return TaskFailure(kind=TOO_LARGE_KIND, message=text, recoverable=False)

    def _title(self, link: Link) -> str:
        return f"{self._topology.name(link.source)!r} -> {self._topology.name(link.target)!r}"


def levels(topology: Topology) -> dict[VertexId, int]:
    """The level of each vertex: the largest number of reported exchanges on a way to it.

    Raises:
        ConfigError: a vertex reads committables together with other rows, which could be lost.
    """
    found: dict[VertexId, int] = {}
    for vertex in topology.vertices:
        inputs = topology.inputs[vertex]
        found[vertex] = max((found[link.source] + link.partition.is_reported for link in inputs), default=0)
        for link in inputs:
            if not link.partition.is_reported and found[link.source] < found[vertex]:
                raise ConfigError(
                    f"exchange {topology.name(link.source)!r} -> {topology.name(vertex)!r}: an operator that "
                    "reads committables of a BATCH job reads no other rows"
                )
    return found

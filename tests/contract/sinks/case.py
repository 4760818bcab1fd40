"""A sink on an empty place, and what a job asks of its writers and its committer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from unistream.base.ids import AttemptId, CheckpointId, JobId, LeaderEpoch, LineageId, OperatorUid, VertexId
from unistream.model.elements import Batch
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitRequest, Committer, Sink, SinkContext, SinkWriter
from unistream.testing.harness.operators import CountingMetrics

LINEAGE = LineageId("lineage-1")


def context(
    *,
    index: int = 0,
    attempt: int = 0,
    restored: int | None = None,
    lineage: LineageId = LINEAGE,
    checkpointing: bool = True,
) -> SinkContext:
    job = JobId("0" * 32)
    return SinkContext(
        job=job,
        lineage=lineage,
        sink_uid=OperatorUid("the sink"),
        attempt=AttemptId(job, VertexId("1" * 32), index, attempt),
        index=index,
        parallelism=2,
        restored=None if restored is None else CheckpointId(restored),
        metrics=CountingMetrics(),
        checkpointing=checkpointing,
    )


def permit(checkpoint: int, lineage: LineageId = LINEAGE) -> CommitPermit:
    return CommitPermit(lineage=lineage, checkpoint_id=CheckpointId(checkpoint), epoch=LeaderEpoch(1))


def request(checkpoint: int, *committables: bytes) -> CommitRequest:
    return CommitRequest(CheckpointId(checkpoint), committables)


def batch(*ids: int) -> Batch:
    names = pa.array([f"name {id % 3}" for id in ids])
    return Batch(pa.RecordBatch.from_arrays([pa.array(ids, pa.int64()), names], names=["id", "name"]))


@dataclass
class Case:
    """One sink on one empty place. `read`: ids that a reader sees; `files`: how much is staged or visible;
    `lose`: removes a staged file that is not on the disk. `waiting`: that of the first attempt, opened
    before the first row is written, as the runtime does it."""

    sink: Sink
    read: Callable[[], list[int]]
    files: Callable[[], int]
    lose: Callable[[], None] | None = None
    made: list[SinkWriter | Committer] = field(default_factory=list)
    staging: dict[int, SinkWriter] = field(default_factory=dict)
    waiting: Committer | None = None

    def writer(self, states: Sequence[bytes] = (), **where: int | None) -> SinkWriter:
        writer = self.sink.create_writer()
        self.made.append(writer)
        writer.open(context(**where), states)
        return writer

    def committer(self, restored: int | None = None, lineage: LineageId = LINEAGE, **where: Any) -> Committer:
        """That of the first attempt, once; else a new one."""
        if self.waiting is not None and (restored, lineage, where) == (None, LINEAGE, {}):
            waiting, self.waiting = self.waiting, None
            return waiting
        return self._new_committer(restored, lineage, **where)

    def _new_committer(self, restored: int | None, lineage: LineageId, **where: Any) -> Committer:
        committer = self.sink.create_committer()
        assert committer is not None
        self.made.append(committer)
        committer.open(context(restored=restored, lineage=lineage, **where))
        return committer

    def stage(self, checkpoint: int, *ids: int, index: int = 0) -> list[bytes]:
        """By the one writer of the subtask."""
        if not self.made:
            self.waiting = self._new_committer(None, LINEAGE)
        writer = self.staging.get(index)
        if writer is None:
            writer = self.staging[index] = self.writer(index=index)
        writer.write(batch(*ids))
        writer.flush(end_of_input=False)
        return list(writer.prepare_commit(CheckpointId(checkpoint)))

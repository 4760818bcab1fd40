"""Rows in the folder of a file sink, written and committed as a job does."""

from __future__ import annotations

import pyarrow as pa

from unistream.base.ids import (
    AttemptId,
    CheckpointId,
    JobId,
    LeaderEpoch,
    LineageId,
    OperatorUid,
    VertexId,
)
from unistream.connector.file import FileSink
from unistream.model.elements import Batch
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitRequest, SinkContext
from unistream.testing.harness.operators import CountingMetrics


def write_files(sink: FileSink, rows: pa.Table) -> None:
    """By one writer, in one checkpoint."""
    job, lineage = JobId("a" * 32), LineageId("lineage")
    context = SinkContext(
        job=job,
        lineage=lineage,
        sink_uid=OperatorUid("sink"),
        attempt=AttemptId(job, VertexId("v"), 0, 0),
        index=0,
        parallelism=1,
        restored=None,
        metrics=CountingMetrics(),
    )
    sink.check(rows.schema)
    writer, committer = sink.create_writer(), sink.create_committer()
    assert committer is not None
    writer.open(context, ())
    for records in rows.to_batches():
        writer.write(Batch(records))
    writer.flush(end_of_input=True)
    committer.open(context)
    permit = CommitPermit(lineage=lineage, checkpoint_id=CheckpointId(1), epoch=LeaderEpoch(1))
    committables = tuple(writer.prepare_commit(CheckpointId(1)))
    committer.commit(permit, CommitRequest(CheckpointId(1), committables))
    writer.close()
    committer.close()

"""It counts, and does nothing else."""

from __future__ import annotations

import pyarrow as pa

from unistream.base.ids import AttemptId, CheckpointId, JobId, LineageId, OperatorUid, VertexId
from unistream.connector.blackhole import BlackholeSink
from unistream.model.elements import Batch
from unistream.port.sink import SinkContext
from unistream.testing.harness.operators import CountingMetrics


def test_rows_and_bytes_are_counted() -> None:
    job, metrics = JobId("0" * 32), CountingMetrics()
    context = SinkContext(
        job=job,
        lineage=LineageId("l"),
        sink_uid=OperatorUid("hole"),
        attempt=AttemptId(job, VertexId("1" * 32), 0, 0),
        index=0,
        parallelism=1,
        restored=None,
        metrics=metrics,
    )
    sink = BlackholeSink()
    sink.check(None)
    assert sink.create_committer() is None
    writer = sink.create_writer()
    writer.open(context, ())
    for rows in (10, 5):
        writer.write(Batch(pa.RecordBatch.from_pydict({"n": pa.array(range(rows), pa.int64())})))
    writer.flush(end_of_input=True)
    assert list(writer.prepare_commit(CheckpointId(1))) == []
    writer.close()
    assert metrics.counts == {"numRecordsSend": 15, "numBytesSend": 120}

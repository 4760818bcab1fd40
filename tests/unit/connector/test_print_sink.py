"""What is printed."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from unistream.base.ids import AttemptId, CheckpointId, JobId, LineageId, OperatorUid, VertexId
from unistream.connector.print_ import PrintSink, render_rows
from unistream.model.elements import Batch
from unistream.port.sink import SinkContext
from unistream.testing.harness.operators import CountingMetrics


def context(index: int, parallelism: int) -> SinkContext:
    job = JobId("0" * 32)
    return SinkContext(
        job=job,
        lineage=LineageId("l"),
        sink_uid=OperatorUid("print"),
        attempt=AttemptId(job, VertexId("1" * 32), index, 0),
        index=index,
        parallelism=parallelism,
        restored=None,
        metrics=CountingMetrics(),
    )


@pytest.mark.parametrize(
    ("prefix", "parallelism", "head"),
    [("", 1, ""), ("late", 1, "late> "), ("", 2, "2> "), ("late", 2, "late:2> ")],
)
def test_a_row_is_a_line(
    capsys: pytest.CaptureFixture[str], prefix: str, parallelism: int, head: str
) -> None:
    sink = PrintSink(prefix)
    sink.check(None)
    writer = sink.create_writer()
    writer.open(context(parallelism - 1, parallelism), ())
    writer.write(Batch(pa.RecordBatch.from_pydict({"n": [1, None], "t": ["x", "y"]})))
    writer.flush(end_of_input=False)
    writer.close()
    assert capsys.readouterr().out == f"{head}n=1, t=x\n{head}n=null, t=y\n"
    assert list(writer.prepare_commit(CheckpointId(1))) == []
    assert sink.create_committer() is None


def test_every_type_can_be_printed() -> None:
    at = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
    records = pa.RecordBatch.from_arrays(
        [
            pa.array([[1, 2], None]),
            pa.array([{"a": 1}, None]),
            pa.array([b"\xff", b"a"]),
            pa.array([at, None]),
            pa.array(["x", None]).dictionary_encode(),
            pa.array([1.5, None]),
        ],
        names=["l", "s", "b", "t", "d", "f"],
    )
    first, second = render_rows(records)
    assert first == "l=[1, 2], s={'a': 1}, b=b'\\xff', t=2013-01-01 00:00:00.000000Z, d=x, f=1.5"
    assert second == "l=null, s=null, b=b'a', t=null, d=null, f=null"


def test_rows_without_columns_are_empty_lines() -> None:
    records = pa.RecordBatch.from_pydict({"n": [1, 2]}).select([])
    assert render_rows(records) == [""] * records.num_rows

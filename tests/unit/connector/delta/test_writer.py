"""Staged files and committables of the Delta sink."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import fsspec
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unistream.base.errors import ConfigError, CorruptSnapshot, Unreachable, UserCodeError
from unistream.base.ids import AttemptId, CheckpointId, JobId, LineageId, OperatorUid, VertexId
from unistream.connector.common import StageFiles, partition_folder
from unistream.connector.common.partitions import NULL_PARTITION
from unistream.connector.delta.stage import (
    DeltaCommittable,
    decode_committable,
    schema_from_bytes,
    write_parquet,
)
from unistream.connector.delta.writer import DeltaWriter
from unistream.model.elements import Batch
from unistream.port.sink import SinkContext
from unistream.testing.harness.operators import CountingMetrics

TABLE = pa.table({"n": [1, 2, 3]})


def writer(
    uri: str, partition_by: tuple[str, ...] = (), target: int = 1 << 20
) -> tuple[DeltaWriter, CountingMetrics]:
    job, metrics = JobId("0" * 32), CountingMetrics()
    made = DeltaWriter(
        table_uri=uri,
        partition_by=partition_by,
        target_file_bytes=target,
        stage=StageFiles(uri, {}, "table"),
        create=True,
    )
    made.open(
        SinkContext(
            job=job,
            lineage=LineageId("l"),
            sink_uid=OperatorUid("my/../sink"),
            attempt=AttemptId(job, VertexId("1" * 32), 3, 9),
            index=3,
            parallelism=4,
            restored=None,
            metrics=metrics,
        ),
        (),
    )
    return made, metrics


def batch(**columns: object) -> Batch:
    return Batch(pa.RecordBatch.from_pydict(columns))


def prepare(made: DeltaWriter) -> DeltaCommittable:
    made.flush(end_of_input=False)
    [prepared] = made.prepare_commit(CheckpointId(5))
    return decode_committable(prepared)


def test_a_committable_tells_what_was_staged(tmp_path: Path) -> None:
    made, metrics = writer(str(tmp_path), ("p",))
    made.write(batch(n=[1, 2, 3], p=["b", "a", "b"]))
    made.write(batch(n=[4], p=["a"]))
    committable = prepare(made)
    assert (committable.checkpoint_id, committable.subtask, committable.partition_by) == (5, 3, ("p",))
    assert schema_from_bytes(committable.schema) == pa.schema([("n", pa.int64()), ("p", pa.string())])
    found = {}
    for file in committable.files:
        assert file.path.startswith(f"p={file.partition_values['p']}/my----sink-3-9-")
        assert file.size == os.path.getsize(tmp_path / file.path)
        found[file.partition_values["p"]] = pq.read_table(tmp_path / file.path, partitioning=None).to_pydict()
    assert found == {"a": {"n": [2, 4]}, "b": {"n": [1, 3]}}
    assert metrics.counts["numRecordsSend"] == 4


def test_any_file_system_can_be_written() -> None:
    folder = f"memory://{uuid.uuid4().hex}"
    made, _ = writer(folder, ("p",))
    made.write(batch(n=[1, 2], p=["x y", None]))
    for file in prepare(made).files:
        stage = StageFiles(folder, {}, "table")
        assert stage.size(file.path) == file.size
        with fsspec.open(f"{folder}/{file.path}") as source:
            assert pq.read_metadata(source).num_rows == 1
        stage.remove(file.path)
        assert stage.size(file.path) is None


def test_removing_what_is_not_there_is_fine(tmp_path: Path) -> None:
    StageFiles(str(tmp_path), {}, "table").remove("none.parquet")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "p=1").write_text("in the way")
    with pytest.raises((Unreachable, ConfigError), match=r"p=1/a\.parquet"):
        StageFiles(str(tmp_path), {}, "table").write("p=1/a.parquet", lambda file: write_parquet(file, TABLE))


def test_an_unknown_file_system_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot use this file system"):
        StageFiles("nowhere://x/y", {}, "table")


@pytest.mark.parametrize(
    ("first", "then", "message"),
    [
        ({"n": pa.array([2**62])}, {"n": pa.array(["x"])}, "schema changed from .n int64. to .n string."),
        (
            {"n": pa.array([1_000], pa.timestamp("ns"))},
            {"n": pa.array([1_001], pa.timestamp("ns"))},
            r"column 'n' \(timestamp\[ns\]\) cannot be stored as timestamp\[us\]",
        ),
    ],
    ids=["another schema", "nanoseconds"],
)
def test_rows_that_cannot_be_stored_are_refused(
    tmp_path: Path, first: dict[str, object], then: dict[str, object], message: str
) -> None:
    made, _ = writer(str(tmp_path))
    made.write(batch(**first))
    with pytest.raises(UserCodeError, match=message):
        made.write(batch(**then))
    made.close()
    assert list(tmp_path.iterdir()) == []


def test_nulls_where_none_were_declared_are_refused(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    made, _ = writer(str(tmp_path))
    with pytest.raises(UserCodeError, match="'n' is declared without nulls but has some"):
        made.write(Batch(pa.RecordBatch.from_arrays([pa.array([1, None])], schema=schema)))


def test_memory_is_bounded_over_all_partitions(tmp_path: Path) -> None:
    made, _ = writer(str(tmp_path), ("p",), target=1 << 30)
    payload = ["x" * 1000] * 20_000
    for _ in range(8):
        made.write(batch(t=payload, p=[i % 4 for i in range(20_000)]))
    assert len(list(tmp_path.rglob("*.parquet"))) >= 1
    assert sum(file.rows for file in prepare(made).files) == 160_000


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        (None, f"p={NULL_PARTITION}/"),
        ("a b/c", "p=a%20b%2Fc/"),
        ("..", "p=../"),
        ("x" * 300, "p=" + "x" * 120 + "-"),
        ("a~b", "p=a%7Eb/"),
    ],
    ids=str,
)
def test_partition_folders(value: str | None, folder: str) -> None:
    made = partition_folder({"p": value})
    assert made.startswith(folder)
    assert len(made) < 200


def test_long_values_have_folders_of_their_own() -> None:
    assert partition_folder({"p": "x" * 300}) != partition_folder({"p": "x" * 301})


def test_committables_are_versioned() -> None:
    committable = DeltaCommittable(
        table_uri="t", schema=b"", partition_by=(), files=(), checkpoint_id=1, subtask=0
    )
    assert decode_committable(msgspec.msgpack.encode(committable)) == committable
    before = msgspec.structs.replace(committable, format=1)
    assert decode_committable(msgspec.msgpack.encode(before)) == before
    newer = msgspec.structs.replace(committable, format=4)
    with pytest.raises(CorruptSnapshot, match="format 4, this version reads 3"):
        decode_committable(msgspec.msgpack.encode(newer))
    with pytest.raises(CorruptSnapshot, match="unreadable"):
        decode_committable(b"{}")
    with pytest.raises(CorruptSnapshot, match="unreadable"):
        schema_from_bytes(b"")

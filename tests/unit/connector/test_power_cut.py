"""What a sink has committed into a new folder survives a power cut: the job does not commit it again."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.fault_fs import PowerCut
from unistream.connector.collect import read_collected
from unistream.operator.sink import CommitterOperator, SinkWriterOperator
from unistream.port.sink import Sink
from unistream.testing.harness import OperatorHarness


@pytest.fixture
def power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PowerCut:
    """Everything below `tmp_path` that is synced from now on."""
    real = os.fsync
    power = PowerCut(tmp_path)

    def recorded(handle: int) -> None:
        with monkeypatch.context() as itself:
            itself.setattr(os, "fsync", real)
            power.fsync(handle)

    monkeypatch.setattr(os, "fsync", recorded)
    return power


def ids(folder: Path) -> list[int]:
    if DeltaTable.is_deltatable(str(folder)):
        return list(DeltaTable(str(folder)).to_pyarrow_table()["id"].to_pylist())
    if (folder / "commits").exists():
        return list(read_collected(str(folder))["id"].to_pylist())
    return [id for path in folder.rglob("part-*.parquet") for id in pq.read_table(path)["id"].to_pylist()]


@pytest.mark.parametrize("make", [us.DeltaSink, us.FileSink, us.CollectSink], ids=lambda make: make.__name__)
def test_the_first_commit_into_a_new_folder_survives(
    tmp_path: Path, power: PowerCut, make: type[Sink]
) -> None:
    folder = tmp_path / "new" / "lake" / "out"
    sink = make(str(folder))
    writer, committer = (
        OperatorHarness(kind(sink), name="sink").open() for kind in (SinkWriterOperator, CommitterOperator)
    )
    writer.process(pa.record_batch({"id": [1, 2]}))
    writer.operator.prepare_snapshot_pre_barrier(1)
    for batch in writer.batches():
        committer.operator.process_batch(batch, 0)
    committer.complete(1)
    assert ids(folder) == [1, 2]
    power.cut()
    assert ids(folder) == [1, 2]

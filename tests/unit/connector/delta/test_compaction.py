"""When small files of a Delta table are rewritten, and that nobody notices but by their number."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.contract.test_contract_sink import batch, context, permit, request
from tests.eventually import eventually
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId
from unistream.connector.delta import DeltaSink
from unistream.connector.delta.compaction import Compactor
from unistream.connector.delta.table import LakeTable, Unknown


def fill(table: Path, *parts: str, rows: int = 1) -> None:
    """A version, and a file, for each."""
    for part in parts:
        columns = {"p": [part] * rows, "n": list(range(rows))}
        write_deltalake(str(table), pa.table(columns), partition_by=["p"], mode="append")


def open_(table: Path) -> LakeTable:
    found = LakeTable.open(str(table), {})
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("parts", "bytes_max", "most"),
    [("a", 10_000, 1), ("aabab", 10_000, 3), ("ab", 10_000, 1), ("aaa", 10, 0)],
)
def test_small_files_are_counted_by_partition(tmp_path: Path, parts: str, bytes_max: int, most: int) -> None:
    fill(tmp_path / "t", *parts)
    assert open_(tmp_path / "t").small_files(bytes_max) == most


def test_small_files_of_a_table_without_partitions(tmp_path: Path) -> None:
    for number in range(3):
        write_deltalake(str(tmp_path / "t"), pa.table({"n": [number]}), mode="append")
    assert open_(tmp_path / "t").small_files(10_000) == 3


def test_a_compaction_changes_no_row(tmp_path: Path) -> None:
    fill(tmp_path / "t", *"aabab")
    table = open_(tmp_path / "t")
    before = sorted(table.rows().to_pylist(), key=str)
    assert table.compact(1_000_000) == (5, 2)
    assert table.version == 5
    assert sorted(open_(tmp_path / "t").rows().to_pylist(), key=str) == before
    assert open_(tmp_path / "t").compact(1_000_000) == (0, 0)
    assert open_(tmp_path / "t").version == 5, "nothing to do is no version"


class Looks:
    """Instead of a table: counts who looks. The first look waits until it may go on."""

    def __init__(self, answer: Callable[[], None]) -> None:
        self.looks = 0
        self.may_go_on = threading.Event()
        self._answer = answer

    def open(self, _uri: str, _options: object) -> None:
        self.looks += 1
        assert self.may_go_on.wait(10)
        self._answer()


def refuses() -> None:
    raise Unknown("no answer")


@pytest.mark.parametrize("answer", [lambda: None, refuses], ids=["there is no table", "it fails"])
def test_it_looks_at_first_and_then_after_so_many_files_one_at_a_time(
    answer: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    looks = Looks(answer)
    compactor = Compactor("t", {}, 10, looks)  # type: ignore[arg-type]
    compactor.committed(1)
    eventually(lambda: looks.looks == 1, "the first look: what is there is not known")
    compactor.committed(20)
    assert looks.looks == 1, "not while another one is under way"
    looks.may_go_on.set()
    compactor.close()
    compactor.committed(1)
    compactor.close()
    assert looks.looks == 2, "those that came meanwhile count"
    compactor.committed(9)
    compactor.close()
    assert looks.looks == 2
    compactor.committed(1)
    compactor.close()
    assert looks.looks == 3
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == (3 if answer is refuses else 0)


def committed(sink: DeltaSink, checkpoints: int) -> DeltaTable:
    """The table, after as many checkpoints of one row each."""
    committer, writer = sink.create_committer(), sink.create_writer()
    assert committer is not None
    committer.open(context())
    writer.open(context(), [])
    for checkpoint in range(1, checkpoints + 1):
        writer.write(batch(checkpoint))
        writer.flush(end_of_input=False)
        staged = writer.prepare_commit(CheckpointId(checkpoint))
        assert committer.commit(permit(checkpoint), request(checkpoint, *staged)).rows == 1
    writer.close()
    committer.close()
    table = DeltaTable(sink.table_uri)
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == list(range(1, checkpoints + 1))
    return table


def test_commits_and_compactions_stand_next_to_each_other(tmp_path: Path) -> None:
    """Each checkpoint is one commit, whose conflict with a compaction is passed over; none is lost."""
    table = committed(DeltaSink(str(tmp_path / "table"), auto_compact_files=3), 40)
    operations = [entry["operation"] for entry in table.history()]
    assert operations.count("WRITE") == 40
    assert operations.count("OPTIMIZE") >= 2
    assert len(table.file_uris()) < 40


def test_without_it_nothing_is_compacted(tmp_path: Path) -> None:
    assert len(committed(DeltaSink(str(tmp_path / "table")), 5).file_uris()) == 5


@pytest.mark.parametrize("files", [0, 1, -5, True, "50", 2.5])
def test_what_is_no_number_of_files_is_refused(files: Any) -> None:
    with pytest.raises(ConfigError, match="auto_compact_files is a number from 2 on"):
        DeltaSink("t", auto_compact_files=files)

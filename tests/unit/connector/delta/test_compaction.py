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

from tests.contract.sinks.case import batch, context, permit, request
from tests.eventually import WAIT_S, eventually
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId
from unistream.connector.common import StageFiles, Unknown
from unistream.connector.delta import DeltaSink
from unistream.connector.delta.compaction import Compactor
from unistream.connector.delta.rewriting import plan
from unistream.connector.delta.table import COMPACTION_KEY, DeltaSinkTable


def fill(table: Path, *parts: str, rows: int = 1) -> None:
    """A version, and a file, for each."""
    for part in parts:
        columns = {"p": [part] * rows, "n": list(range(rows))}
        write_deltalake(str(table), pa.table(columns), partition_by=["p"], mode="append")


def open_(table: Path) -> DeltaSinkTable:
    found = DeltaSinkTable.open(str(table), {})
    assert found is not None
    return found


def compactor_of(table: Path, files_min: int = 2, tables: type[DeltaSinkTable] = DeltaSinkTable) -> Compactor:
    return Compactor(str(table), {}, StageFiles(str(table), {}, "the table"), files_min, tables)


def compact(table: Path, files_min: int = 2, tables: type[DeltaSinkTable] = DeltaSinkTable) -> None:
    compactor = compactor_of(table, files_min, tables)
    compactor.committed(files_min)
    compactor.wait()


def rows_of(table: Path) -> list[Any]:
    return sorted(DeltaTable(str(table)).to_pyarrow_table().to_pylist(), key=str)


def files_of(table: Path) -> list[dict[str, Any]]:
    return pa.table(DeltaTable(str(table)).get_add_actions(flatten=True)).to_pylist()


def unnamed_files(table: Path) -> int:
    return len(list(table.rglob("compacted-*.parquet"))) - sum(
        "compacted-" in one["path"] for one in files_of(table)
    )


@pytest.mark.parametrize(
    ("parts", "files_min", "left"),
    [
        pytest.param("aabab", 3, {"a": 1, "b": 2}, id="a partition with enough small files"),
        pytest.param("aabab", 2, {"a": 1, "b": 1}, id="each of them"),
        pytest.param("aab", 4, {"a": 2, "b": 1}, id="none has enough"),
    ],
)
def test_partitions_with_enough_small_files_are_compacted(
    tmp_path: Path, parts: str, files_min: int, left: dict[str, int]
) -> None:
    fill(tmp_path / "t", *parts)
    before = rows_of(tmp_path / "t")
    compact(tmp_path / "t", files_min)
    files = [one["partition.p"] for one in files_of(tmp_path / "t")]
    assert {part: files.count(part) for part in set(files)} == left
    assert rows_of(tmp_path / "t") == before
    version = DeltaTable(str(tmp_path / "t")).version()
    compact(tmp_path / "t", 4)
    assert DeltaTable(str(tmp_path / "t")).version() == version, "nothing to do is no version"


def test_files_are_grouped_up_to_a_size_and_large_ones_are_left(tmp_path: Path) -> None:
    fill(tmp_path / "t", *"aaaaa")
    small = open_(tmp_path / "t").small_files(10_000)
    assert [len(one.files) for one in plan(small, 2, 2 * small[0].size)] == [2, 2]
    assert [len(one.files) for one in plan(small, 2, 100 * small[0].size)] == [5]
    assert plan(small, 6, 100 * small[0].size) == []
    assert open_(tmp_path / "t").small_files(10) == []


class Looks:
    """Instead of a table: counts who looks. The first look waits until it may go on."""

    def __init__(self, answer: Callable[[], None]) -> None:
        self.looks = 0
        self.may_go_on = threading.Event()
        self._answer = answer

    def open(self, _uri: str, _options: object) -> None:
        self.looks += 1
        assert self.may_go_on.wait(WAIT_S)
        self._answer()


def refuses() -> None:
    raise Unknown("no answer")


@pytest.mark.parametrize("answer", [lambda: None, refuses], ids=["there is no table", "it fails"])
def test_it_looks_at_first_and_then_after_so_many_files_one_at_a_time(
    tmp_path: Path, answer: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    looks = Looks(answer)
    compactor = compactor_of(tmp_path / "t", 10, looks)  # type: ignore[arg-type]
    compactor.committed(1)
    eventually(lambda: looks.looks == 1, "the first look: what is there is not known")
    compactor.committed(20)
    assert looks.looks == 1, "not while another one is under way"
    looks.may_go_on.set()
    compactor.wait()
    compactor.committed(1)
    compactor.wait()
    assert looks.looks == 2, "those that came meanwhile count"
    compactor.committed(9)
    compactor.wait()
    assert looks.looks == 2
    compactor.committed(1)
    compactor.wait()
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
    compactions = [COMPACTION_KEY in entry for entry in table.history()]
    assert compactions.count(False) == 1 + 40, "creation and checkpoints"
    assert compactions.count(True) >= 2
    assert len(table.file_uris()) < 40


def test_without_it_nothing_is_compacted(tmp_path: Path) -> None:
    assert len(committed(DeltaSink(str(tmp_path / "table")), 5).file_uris()) == 5


@pytest.mark.parametrize("files", [0, 1, -5, True, "50", 2.5])
def test_what_is_no_number_of_files_is_refused(files: Any) -> None:
    with pytest.raises(ConfigError, match="auto_compact_files is a number from 2 on"):
        DeltaSink("t", auto_compact_files=files)


# --- others that compact the table --------------------------------------------------------------------


def test_a_table_that_others_compact_is_left_to_them(tmp_path: Path) -> None:
    fill(tmp_path / "t", *"aa")
    DeltaTable(str(tmp_path / "t")).optimize.compact()
    fill(tmp_path / "t", *"aa")
    version = DeltaTable(str(tmp_path / "t")).version()
    compact(tmp_path / "t")
    assert DeltaTable(str(tmp_path / "t")).version() == version


def test_an_optimize_that_has_not_seen_a_part_of_the_files_leaves_the_others(tmp_path: Path) -> None:
    fill(tmp_path / "t", *"aaa")
    stale, before = DeltaTable(str(tmp_path / "t")), rows_of(tmp_path / "t")
    two_files = 2 * open_(tmp_path / "t").small_files(10_000)[0].size
    compact(tmp_path / "t")
    stale.optimize.compact(target_size=two_files)
    assert len(rows_of(tmp_path / "t")) == 5, "two of them are there twice"
    compact(tmp_path / "t")
    assert rows_of(tmp_path / "t") == before
    assert open_(tmp_path / "t").row_count() == 3


def test_a_compaction_of_what_was_compacted_is_taken_back_as_well(tmp_path: Path) -> None:
    fill(tmp_path / "t", *"aab")
    stale = DeltaTable(str(tmp_path / "t"))
    compact(tmp_path / "t")
    fill(tmp_path / "t", *"aa")
    before = rows_of(tmp_path / "t")
    compact(tmp_path / "t")
    stale.optimize.compact()
    assert len(rows_of(tmp_path / "t")) == 7
    compact(tmp_path / "t")
    assert rows_of(tmp_path / "t") == before


def test_what_cannot_be_set_right_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(tmp_path / "t", *"aa")
    stale = DeltaTable(str(tmp_path / "t"))
    compactor = compactor_of(tmp_path / "t")
    compactor.committed(2)
    compactor.wait()
    DeltaTable(str(tmp_path / "t")).optimize.z_order(["n"])
    stale.optimize.compact()
    compactor.close()
    [error] = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert error.startswith("event=compaction_doubled")
    assert "look for rows that are twice, and restore a version before" in error


def test_a_restored_version_has_its_files_again(tmp_path: Path) -> None:
    fill(tmp_path / "t", *"aa")
    compact(tmp_path / "t")
    DeltaTable(str(tmp_path / "t")).restore(1)
    DeltaTable(str(tmp_path / "t")).delete("n = 0")
    version = DeltaTable(str(tmp_path / "t")).version()
    compact(tmp_path / "t")
    assert rows_of(tmp_path / "t") == []
    assert DeltaTable(str(tmp_path / "t")).version() == version, "nothing is wrong"


def interrupted(act: Callable[[Path], object], table: Path) -> type[DeltaSinkTable]:
    """A table to which somebody else commits before a compaction does, each time."""

    class Interrupted(DeltaSinkTable):
        def rewrite(self, *arguments: Any) -> None:
            act(table)
            super().rewrite(*arguments)

    return Interrupted


def test_without_an_end_of_other_commits_it_gives_up_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "t", *"aa")
    monkeypatch.setattr("unistream.connector.delta.compaction.ATTEMPTS_MAX", 3)
    compact(tmp_path / "t", tables=interrupted(lambda table: fill(table, "b"), tmp_path / "t"))
    assert len(rows_of(tmp_path / "t")) == 5
    assert unnamed_files(tmp_path / "t") == 0


def test_a_file_that_was_removed_meanwhile_is_not_brought_back(tmp_path: Path) -> None:
    fill(tmp_path / "t", *"aab")
    gone = interrupted(lambda table: DeltaTable(str(table)).delete("p = 'a'"), tmp_path / "t")
    compact(tmp_path / "t", tables=gone)
    assert [row["p"] for row in rows_of(tmp_path / "t")] == ["b"]
    assert unnamed_files(tmp_path / "t") == 0


@pytest.mark.parametrize("happened", [True, False], ids=["it was made", "it was not"])
def test_a_commit_without_an_answer_is_looked_for(tmp_path: Path, happened: bool) -> None:
    fill(tmp_path / "t", *"aa")
    before, left = rows_of(tmp_path / "t"), [1]

    class Answerless(DeltaSinkTable):
        def rewrite(self, *arguments: Any) -> None:
            if not left or happened:
                super().rewrite(*arguments)
            if left:
                left.pop()
                raise Unknown("connection reset")

    compact(tmp_path / "t", tables=Answerless)
    assert rows_of(tmp_path / "t") == before
    assert len(files_of(tmp_path / "t")) == 1
    assert DeltaTable(str(tmp_path / "t")).version() == 2


def test_a_closed_one_begins_no_file(tmp_path: Path) -> None:
    fill(tmp_path / "t", *"aa")
    compactor = compactor_of(tmp_path / "t")
    compactor.close()
    compactor.committed(2)
    compactor.wait()
    assert DeltaTable(str(tmp_path / "t")).version() == 1

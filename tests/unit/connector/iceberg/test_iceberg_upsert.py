"""Rows that replace those of the same key in an Iceberg table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.contract.sinks.case import context, permit
from tests.iceberg_lake import TABLE, Lake
from unistream.base.crash_points import passing
from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.ids import CheckpointId
from unistream.connector.catalogue import committer_of
from unistream.connector.iceberg import IcebergSink
from unistream.model.elements import Batch
from unistream.port.sink import (
    CommitOutcome,
    CommitRequest,
    CommitResult,
    Committer,
    JointCommitter,
    SinkWriter,
)

ROW = pa.schema([("id", pa.int64()), ("city", pa.string()), ("n", pa.int64()), ("kind", pa.string())])


def row(id: int, n: int, city: str = "Ulm", kind: str = "update") -> dict[str, Any]:
    return {"id": id, "city": city, "n": n, "kind": kind}


@dataclass
class Keyed:
    """A table that one sink writes."""

    lake: Lake
    sink: IcebergSink
    schema: pa.Schema = ROW
    made: list[Any] = field(default_factory=list)
    writers: dict[int, SinkWriter] = field(default_factory=dict)

    def stage(self, checkpoint: int, *rows: dict[str, Any], index: int = 0) -> tuple[bytes, ...]:
        if index not in self.writers:
            self.writers[index] = self.sink.create_writer()
            self.made.append(self.writers[index])
            self.writers[index].open(context(index=index), [])
        self.writers[index].write(Batch(pa.RecordBatch.from_pylist(list(rows), schema=self.schema)))
        self.writers[index].flush(end_of_input=False)
        return tuple(self.writers[index].prepare_commit(CheckpointId(checkpoint)))

    def committer(self, restored: int | None = None) -> Committer:
        found = self.sink.create_committer()
        assert found is not None
        self.made.append(found)
        found.open(context(restored=restored))
        return found

    def commit(self, checkpoint: int, *rows: dict[str, Any]) -> CommitResult:
        request = CommitRequest(CheckpointId(checkpoint), self.stage(checkpoint, *rows))
        result = self.committer(None if checkpoint == 1 else checkpoint - 1).commit(
            permit(checkpoint), request
        )
        assert result.outcome is CommitOutcome.COMMITTED
        return result

    def rows(self) -> list[tuple[int, int, str]]:
        with self.lake.table() as table:
            found = table.scan().to_arrow().to_pylist()
        return sorted((one["id"], one["n"], one["city"]) for one in found)

    def used_files(self) -> set[str]:
        with self.lake.table() as table:
            return {task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()}

    def unused_files(self) -> list[str]:
        used = self.used_files()
        return [str(path) for path in self.lake.files() if str(path) not in used]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Any]:
    found: list[Keyed] = []
    lake = Lake(tmp_path)

    def made(schema: pa.Schema = ROW, **options: Any) -> Keyed:
        arguments = {"mode": "upsert", "key": "id", **options}
        sink = IcebergSink(TABLE, catalog_properties=lake.properties, **arguments)
        found.append(Keyed(lake, sink, schema))
        return found[-1]

    yield made
    for table in found:
        for one in table.made:
            one.close()


def test_rows_replace_those_of_their_key_and_the_last_of_a_checkpoint_counts(make: Any) -> None:
    table: Keyed = make()
    table.commit(1, row(1, 1), row(2, 1), row(1, 2))
    assert table.rows() == [(1, 2, "Ulm"), (2, 1, "Ulm")]
    done = table.commit(2, row(2, 5), row(3, 1), row(3, 2))
    assert table.rows() == [(1, 2, "Ulm"), (2, 5, "Ulm"), (3, 2, "Ulm")]
    assert (done.rows, done.table_rows) == (3, 3)


@pytest.mark.parametrize("partition_by", [["city"], ["bucket(2, id)"], ["truncate(1, city)", "id"]])
def test_a_row_whose_partition_changes_moves(make: Any, partition_by: list[str]) -> None:
    table: Keyed = make(partition_by=partition_by)
    table.commit(1, row(1, 1, "Ulm"), row(2, 1, "Rom"))
    table.commit(2, row(1, 2, "Rom"))
    assert table.rows() == [(1, 2, "Rom"), (2, 1, "Rom")]


def test_rows_that_delete(make: Any) -> None:
    table: Keyed = make(delete_when=pc.field("kind") == "delete")
    table.commit(1, row(1, 1), row(2, 1), row(3, 1))
    gone, unknown = row(9, 1, kind="delete"), row(4, 1) | {"kind": None}
    table.commit(2, row(1, 2, kind="delete"), gone, row(2, 2, kind="delete"), row(2, 3), unknown)
    assert table.rows() == [(2, 3, "Ulm"), (3, 1, "Ulm"), (4, 1, "Ulm")], "the last row of 2 is no deletion"
    table.commit(3, *(row(n, 9, kind="delete") for n in (2, 3, 4)))
    assert table.rows() == []


def test_a_checkpoint_that_changes_nothing_is_committed_as_well(make: Any) -> None:
    table: Keyed = make(delete_when=pc.field("kind") == "delete")
    committer = table.committer()
    for checkpoint in (1, 2):
        staged = table.stage(checkpoint, row(checkpoint, 1, kind="delete"))
        result = committer.commit(permit(checkpoint), CommitRequest(CheckpointId(checkpoint), staged))
        assert result.outcome is CommitOutcome.COMMITTED
        again = table.committer(restored=checkpoint)
        repeated = again.commit(permit(checkpoint), CommitRequest(CheckpointId(checkpoint), staged))
        assert repeated.outcome is CommitOutcome.ALREADY_COMMITTED
    table.commit(3, row(3, 1))
    assert table.rows() == [(3, 1, "Ulm")]


def test_a_key_of_several_columns(make: Any) -> None:
    table: Keyed = make(key=("id", "city"))
    table.commit(1, row(1, 1, "Ulm"), row(1, 2, "Rom"))
    table.commit(2, row(1, 3, "Rom"))
    assert table.rows() == [(1, 1, "Ulm"), (1, 3, "Rom")]


def test_what_was_staged_is_removed_and_a_repeated_commit_does_not_need_it(make: Any) -> None:
    table: Keyed = make()
    staged = CommitRequest(CheckpointId(1), (*table.stage(1, row(1, 1)), *table.stage(1, row(2, 1), index=1)))
    assert table.committer().commit(permit(1), staged).outcome is CommitOutcome.COMMITTED
    assert table.unused_files() == []
    again = table.committer(restored=1).commit(permit(1), staged)
    assert again.outcome is CommitOutcome.ALREADY_COMMITTED
    assert [one.rows for one in again.visible] == [2]
    assert table.rows() == [(1, 1, "Ulm"), (2, 1, "Ulm")]


def test_the_committables_are_enough_to_commit_them(make: Any) -> None:
    """As `savepoint finalize` does it."""
    table: Keyed = make(delete_when=pc.field("kind") == "delete", partition_by=["city"])
    table.commit(1, row(1, 1), row(2, 1))
    staged = table.stage(2, row(1, 2, "Rom"), row(2, 2, kind="delete"))
    finalizing = committer_of("iceberg", staged)
    table.made.append(finalizing)
    finalizing.open(context(restored=2))
    finalizing.commit(permit(2), CommitRequest(CheckpointId(2), staged))
    assert table.rows() == [(1, 2, "Rom")]


def test_a_row_without_a_key_is_refused(make: Any) -> None:
    table: Keyed = make()
    with pytest.raises(UserCodeError, match=r"column 'id' is part of the key, and null in some rows"):
        table.stage(1, row(1, 1) | {"id": None})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"key": "nobody"}, "key 'nobody' is no column of the stream, which has id, city"),
        ({"key": "share"}, "rows of an Iceberg table cannot be found by column 'share', which is double"),
        ({"delete_when": pc.field("nobody") == 1}, r"delete_when=.*nobody"),
        ({"delete_when": pc.field("n")}, "delete_when=n is int64, and has to be true or false"),
    ],
)
def test_keys_and_conditions_are_checked_before_anything_starts(
    make: Any, options: dict[str, Any], reason: str
) -> None:
    table: Keyed = make(**options)
    with pytest.raises(ConfigError, match=reason):
        table.sink.check(ROW.append(pa.field("share", pa.float64())))


def test_what_another_committer_of_the_checkpoint_has_committed_and_removed_is_done(make: Any) -> None:
    """A predecessor that still runs, between its look and the check of what is staged."""
    table: Keyed = make()
    old = table.committer()
    first = CommitRequest(CheckpointId(1), table.stage(1, row(1, 1)))
    old.commit(permit(1), first)
    second = CommitRequest(CheckpointId(2), table.stage(2, row(1, 2)))
    table.committer(restored=1).commit(permit(2), second)
    assert old.commit(permit(2), second).outcome is CommitOutcome.ALREADY_COMMITTED
    assert table.rows() == [(1, 2, "Ulm")]


def test_a_committer_that_was_paused_finds_that_others_have_committed_and_removed_its_files(
    make: Any,
) -> None:
    table: Keyed = make()
    table.commit(1, row(1, 1))
    given = CommitRequest(CheckpointId(2), table.stage(2, row(1, 2)))
    other, left = table.committer(restored=1), ["iceberg.before_commit"]

    def paused(point: str) -> None:
        if point in left:
            left.remove(point)
            other.commit(permit(2), given)

    with passing(paused):
        table.committer(restored=1).commit(permit(2), given)
    assert not left
    assert table.rows() == [(1, 2, "Ulm")]


def test_of_several_checkpoints_in_one_commit_the_last_counts_whichever_subtask_it_is_of(make: Any) -> None:
    """A job that was rescaled in between; the lists of committables have no order."""
    table: Keyed = make()
    first = table.stage(1, row(1, 1), row(2, 1), index=1)
    second = table.stage(2, row(1, 2), index=0)
    committer = table.committer()
    assert isinstance(committer, JointCommitter)
    given = CommitRequest(CheckpointId(2), (*second, *first))
    assert committer.commit_all(permit(2), [given]).rows == 3
    assert table.rows() == [(1, 2, "Ulm"), (2, 1, "Ulm")]


def test_texts_whose_bound_has_no_next_character_are_written(make: Any) -> None:
    """Statistics keep 16 characters, and behind U+D7FF there is no character."""
    table: Keyed = make(key="city")
    odd = "a" * 15 + "\ud7ff" + "b"
    table.commit(1, row(1, 1, odd), row(2, 1, "z"))
    table.commit(2, row(1, 2, odd))
    assert table.rows() == [(1, 2, odd), (2, 1, "z")]

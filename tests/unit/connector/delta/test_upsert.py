"""Rows that replace those of the same key in a Delta table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.contract.sinks.case import context, permit
from unistream.base.crash_points import passing
from unistream.base.errors import ConfigError, CorruptSnapshot, UserCodeError
from unistream.base.ids import CheckpointId
from unistream.connector.catalogue import committer_of
from unistream.connector.common import last_of_each_key
from unistream.connector.delta import DeltaSink
from unistream.connector.delta.upsert import predicate
from unistream.model.elements import Batch
from unistream.port.sink import CommitOutcome, CommitRequest, Committer, SinkWriter

Rows = list[dict[str, Any]]
ROW = pa.schema([("id", pa.int64()), ("city", pa.string()), ("n", pa.int64()), ("kind", pa.string())])


def row(id: int, n: int, city: str = "Ulm", kind: str = "update") -> dict[str, Any]:
    return {"id": id, "city": city, "n": n, "kind": kind}


@dataclass
class Table:
    """A table that one sink writes."""

    folder: Path
    sink: DeltaSink
    made: list[Any] = field(default_factory=list)
    writers: dict[int, SinkWriter] = field(default_factory=dict)

    def stage(self, checkpoint: int, *rows: dict[str, Any], index: int = 0) -> tuple[bytes, ...]:
        if index not in self.writers:
            self.writers[index] = self.sink.create_writer()
            self.made.append(self.writers[index])
            self.writers[index].open(context(index=index), [])
        self.writers[index].write(Batch(pa.RecordBatch.from_pylist(list(rows), schema=ROW)))
        self.writers[index].flush(end_of_input=False)
        return tuple(self.writers[index].prepare_commit(CheckpointId(checkpoint)))

    def committer(self, restored: int | None = None) -> Committer:
        found = self.sink.create_committer()
        assert found is not None
        self.made.append(found)
        found.open(context(restored=restored))
        return found

    def commit(self, checkpoint: int, *rows: dict[str, Any]) -> None:
        request = CommitRequest(CheckpointId(checkpoint), self.stage(checkpoint, *rows))
        committer = self.committer(None if checkpoint == 1 else checkpoint - 1)
        result = committer.commit(permit(checkpoint), request)
        assert result.outcome is CommitOutcome.COMMITTED

    def rows(self) -> list[tuple[int, int, str]]:
        found = DeltaTable(str(self.folder)).to_pyarrow_table().to_pylist()
        return sorted((one["id"], one["n"], one["city"]) for one in found)

    def unused_files(self) -> list[str]:
        used = set(DeltaTable(str(self.folder)).file_uris())
        return [str(path) for path in self.folder.rglob("*.parquet") if str(path) not in used]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Any]:
    found: list[Table] = []

    def made(**options: Any) -> Table:
        arguments = {"mode": "upsert", "key": "id", **options}
        found.append(Table(tmp_path / "table", DeltaSink(str(tmp_path / "table"), **arguments)))
        return found[-1]

    yield made
    for table in found:
        for one in table.made:
            one.close()


def test_rows_replace_those_of_their_key_and_the_last_of_a_checkpoint_counts(make: Any) -> None:
    table: Table = make()
    table.commit(1, row(1, 1), row(2, 1), row(1, 2))
    assert table.rows() == [(1, 2, "Ulm"), (2, 1, "Ulm")]
    table.commit(2, row(2, 5), row(3, 1), row(3, 2))
    assert table.rows() == [(1, 2, "Ulm"), (2, 5, "Ulm"), (3, 2, "Ulm")]


def test_a_row_whose_partition_changes_moves(make: Any) -> None:
    table: Table = make(partition_by=["city"])
    table.commit(1, row(1, 1, "Ulm"), row(2, 1, "Rom"))
    table.commit(2, row(1, 2, "Rom"))
    assert table.rows() == [(1, 2, "Rom"), (2, 1, "Rom")]


def test_rows_that_delete(make: Any) -> None:
    table: Table = make(delete_when=pc.field("kind") == "delete")
    table.commit(1, row(1, 1), row(2, 1), row(3, 1))
    gone, unknown = row(9, 1, kind="delete"), row(4, 1) | {"kind": None}
    table.commit(2, row(1, 2, kind="delete"), gone, row(2, 2, kind="delete"), row(2, 3), unknown)
    assert table.rows() == [(2, 3, "Ulm"), (3, 1, "Ulm"), (4, 1, "Ulm")], "the last row of 2 is no deletion"


def test_a_checkpoint_that_changes_nothing_is_committed_as_well(make: Any) -> None:
    """Its rows delete what is not there: deltalake makes no version for that."""
    table: Table = make(delete_when=pc.field("kind") == "delete")
    committer = table.committer()
    for checkpoint in (1, 2):
        staged = table.stage(checkpoint, row(checkpoint, 1, kind="delete"))
        result = committer.commit(permit(checkpoint), CommitRequest(CheckpointId(checkpoint), staged))
        assert result.outcome is CommitOutcome.COMMITTED
        assert result.table_version == checkpoint
        again = table.committer(restored=checkpoint)
        repeated = again.commit(permit(checkpoint), CommitRequest(CheckpointId(checkpoint), staged))
        assert repeated.outcome is CommitOutcome.ALREADY_COMMITTED
    table.commit(3, row(3, 1))
    assert table.rows() == [(3, 1, "Ulm")]


def test_a_key_of_several_columns(make: Any) -> None:
    table: Table = make(key=("id", "city"))
    table.commit(1, row(1, 1, "Ulm"), row(1, 2, "Rom"))
    table.commit(2, row(1, 3, "Rom"))
    assert table.rows() == [(1, 1, "Ulm"), (1, 3, "Rom")]


def test_what_was_staged_is_removed_and_a_repeated_commit_does_not_need_it(make: Any) -> None:
    table: Table = make()
    staged = CommitRequest(CheckpointId(1), (*table.stage(1, row(1, 1)), *table.stage(1, row(2, 1), index=1)))
    assert table.committer().commit(permit(1), staged).outcome is CommitOutcome.COMMITTED
    assert table.unused_files() == []
    again = table.committer(restored=1).commit(permit(1), staged)
    assert again.outcome is CommitOutcome.ALREADY_COMMITTED
    assert [one.rows for one in again.visible] == [2]
    assert table.rows() == [(1, 1, "Ulm"), (2, 1, "Ulm")]


def test_a_commit_of_somebody_else_between_two_of_ours_is_kept(make: Any) -> None:
    table: Table = make()
    table.commit(1, row(1, 1))
    committer = table.committer(restored=1)
    staged = CommitRequest(CheckpointId(2), table.stage(2, row(1, 2)))
    write_deltalake(str(table.folder), pa.Table.from_pylist([row(7, 7)], schema=ROW), mode="append")
    assert committer.commit(permit(2), staged).outcome is CommitOutcome.COMMITTED
    assert table.rows() == [(1, 2, "Ulm"), (7, 7, "Ulm")]


def test_files_without_any_of_the_keys_are_not_written_again(make: Any) -> None:
    table: Table = make()
    table.commit(1, *(row(n, 1) for n in range(10)))
    table.commit(2, *(row(n, 1) for n in range(100, 110)))
    (first,) = (
        one["path"]
        for one in pa.table(DeltaTable(str(table.folder)).get_add_actions(flatten=True)).to_pylist()
        if one["max.id"] == 9
    )
    table.commit(3, row(105, 2))
    assert first in {Path(uri).name for uri in DeltaTable(str(table.folder)).file_uris()}


def test_the_committables_are_enough_to_commit_them(make: Any) -> None:
    """As `savepoint finalize` does it."""
    table: Table = make(delete_when=pc.field("kind") == "delete", partition_by=["city"])
    table.commit(1, row(1, 1), row(2, 1))
    staged = table.stage(2, row(1, 2, "Rom"), row(2, 2, kind="delete"))
    finalizing = committer_of("delta", staged)
    table.made.append(finalizing)
    finalizing.open(context(restored=2))
    finalizing.commit(permit(2), CommitRequest(CheckpointId(2), staged))
    assert table.rows() == [(1, 2, "Rom")]


def test_a_row_without_a_key_is_refused(make: Any) -> None:
    table: Table = make()
    with pytest.raises(UserCodeError, match=r"column 'id' is part of the key, and null in some rows"):
        table.stage(1, row(1, 1) | {"id": None})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"key": "nobody"}, "key 'nobody' is no column of the stream, which has id, city"),
        ({"key": "share"}, "cannot be found by column 'share', which is double"),
        ({"delete_when": pc.field("nobody") == 1}, r"delete_when=.*nobody"),
        ({"delete_when": pc.field("n")}, "delete_when=n is int64, and has to be true or false"),
    ],
)
def test_keys_and_conditions_are_checked_before_anything_starts(
    make: Any, options: dict[str, Any], reason: str
) -> None:
    table: Table = make(**options)
    with pytest.raises(ConfigError, match=reason):
        table.sink.check(ROW.append(pa.field("share", pa.float64())))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([], []),
        ([("a", 1)], [("a", 1)]),
        ([("a", 1), ("b", 2), ("a", 3)], [("b", 2), ("a", 3)]),
        ([("a", 1), ("a", 1), ("a", 0)], [("a", 0)]),
    ],
)
def test_the_last_row_of_each_key(given: Sequence[tuple[str, int]], kept: Sequence[tuple[str, int]]) -> None:
    rows = pa.table(
        {"k": pa.array([k for k, _ in given], pa.string()), "n": pa.array([n for _, n in given], pa.int64())}
    )
    found = last_of_each_key(rows, ["k"]).to_pylist()
    assert [(one["k"], one["n"]) for one in found] == list(kept)


def test_names_are_quoted_and_whole_numbers_have_bounds() -> None:
    rows = pa.table({"Id": [3, 5], "select": ["a", "b"]})
    assert predicate(rows, ["Id", "select"]) == (
        't."Id" = s."Id" AND t."select" = s."select" AND t."Id" BETWEEN 3 AND 5'
    )


def test_a_committer_that_was_paused_finds_that_another_one_has_committed_and_removed_its_files(
    make: Any,
) -> None:
    """A predecessor that still runs, with the same checkpoint."""
    table: Table = make()
    table.commit(1, row(1, 1))
    given = CommitRequest(CheckpointId(2), table.stage(2, row(1, 2)))
    other, left = table.committer(restored=1), ["delta.before_append"]

    def paused(passed: str) -> None:
        if passed in left:
            left.remove(passed)
            assert other.commit(permit(2), given).outcome is CommitOutcome.COMMITTED

    with passing(paused):
        done = table.committer(restored=1).commit(permit(2), given)
    assert not left
    assert done.outcome in {CommitOutcome.COMMITTED, CommitOutcome.ALREADY_COMMITTED}
    assert table.rows() == [(1, 2, "Ulm")]


def test_staged_rows_that_are_gone_are_missing_where_nobody_has_committed_them(make: Any) -> None:
    table: Table = make()
    table.commit(1, row(1, 1))
    given = CommitRequest(CheckpointId(2), table.stage(2, row(1, 2)))
    for staged in table.unused_files():
        Path(staged).unlink()
    with pytest.raises(CorruptSnapshot, match="is missing"):
        table.committer(restored=1).commit(permit(2), given)
    assert table.rows() == [(1, 1, "Ulm")]

"""Rows that replace what is in their partitions of a Delta table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.contract.sinks.case import LINEAGE, context, permit
from unistream.base.errors import ConfigError, Unreachable
from unistream.base.ids import CheckpointId, LineageId
from unistream.connector.catalogue import committer_of
from unistream.connector.common import Unknown
from unistream.connector.delta import DeltaSink
from unistream.connector.delta.table import DeltaSinkTable
from unistream.model.elements import Batch
from unistream.port.sink import CommitOutcome, CommitRequest, CommitResult, Committer

DAY = pa.schema([("day", pa.string()), ("hour", pa.int32()), ("n", pa.int64())])
Row = tuple[str | None, int | None, int]
BEFORE: list[Row] = [("mon", 1, 1), ("mon", 2, 2), ("tue", 1, 3), (None, 1, 4), ("it's %/ä", None, 5)]
AT = dt.datetime.fromisoformat("2026-11-26T01:02:03.000004")
LAST = 7  # the number of the one commit of a bounded job


@dataclass
class Overwriting:
    """A table, and a sink that replaces partitions of it."""

    folder: Path
    sink: DeltaSink
    line: LineageId = LINEAGE
    made: list[Any] = field(default_factory=list)

    def fill(self, rows: Sequence[Row] = BEFORE, partition_by: Sequence[str] = ()) -> None:
        write_deltalake(str(self.folder), self._table(rows), partition_by=list(partition_by), mode="append")

    def staged(self, rows: Sequence[Row], index: int = 0) -> tuple[bytes, ...]:
        return self.staged_table(self._table(rows), index)

    def staged_table(self, rows: pa.Table, index: int = 0) -> tuple[bytes, ...]:
        writer = self.sink.create_writer()
        self.made.append(writer)
        writer.open(context(index=index, lineage=self.line, checkpointing=False), [])
        writer.write(Batch(rows.combine_chunks().to_batches()[0]))
        writer.flush(end_of_input=True)
        return tuple(writer.prepare_commit(CheckpointId(LAST)))

    def committer(self, restored: int | None = None) -> Committer:
        found = self.sink.create_committer()
        assert found is not None
        self.made.append(found)
        found.open(context(lineage=self.line, restored=restored, checkpointing=False))
        return found

    def commit(self, staged: tuple[bytes, ...]) -> CommitResult:
        return self.committer().commit(permit(LAST, self.line), CommitRequest(CheckpointId(LAST), staged))

    def overwrite(self, rows: Sequence[Row]) -> None:
        result = self.commit(self.staged(rows))
        assert (result.outcome, result.rows) == (CommitOutcome.COMMITTED, len(rows))

    def rows(self) -> list[Row]:
        found = DeltaTable(str(self.folder)).to_pyarrow_table().to_pylist()
        return sorted(((one["day"], one["hour"], one["n"]) for one in found), key=lambda row: row[2])

    def _table(self, rows: Sequence[Row]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip(DAY.names, row, strict=True)) for row in rows], schema=DAY)


Make = Callable[..., Overwriting]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Overwriting] = []

    def make(**options: Any) -> Overwriting:
        sink = DeltaSink(str(tmp_path / "table"), **{"mode": "overwrite-partitions", **options})
        made.append(Overwriting(tmp_path / "table", sink))
        return made[-1]

    yield make
    for one in made:
        for each in one.made:
            each.close()


def kept(gone: Callable[[Row], bool]) -> list[Row]:
    return [row for row in BEFORE if not gone(row)]


@pytest.mark.parametrize(
    ("partition_by", "rows", "left"),
    [
        (["day"], [("mon", 9, 10)], kept(lambda row: row[0] == "mon")),
        (["day"], [("sun", 9, 10)], BEFORE),
        (["day"], [(None, 9, 10), ("tue", 9, 11)], kept(lambda row: row[0] in (None, "tue"))),
        (["day"], [("it's %/ä", 1, 10)], BEFORE[:-1]),
        (["hour"], [("mon", None, 10)], BEFORE[:-1]),
        (["day", "hour"], [("mon", 2, 10), ("tue", 1, 11)], [BEFORE[0], *BEFORE[3:]]),
        (["day", "hour"], [(None, 1, 10), ("it's %/ä", None, 11)], BEFORE[:3]),
        ([], [("mon", 9, 10)], []),
    ],
)
def test_the_partitions_of_the_rows_are_replaced_and_no_others(
    make: Make, partition_by: list[str], rows: list[Row], left: list[Row]
) -> None:
    table = make(partition_by=partition_by)
    table.fill(partition_by=partition_by)
    table.overwrite(rows)
    assert table.rows() == [*left, *rows]
    table = make(partition_by=partition_by, on_foreign="append")
    table.line = LineageId("9" * 32)  # a run that starts from nothing
    table.overwrite([(day, hour, n + 100) for day, hour, n in rows])
    assert table.rows() == [*left, *((day, hour, n + 100) for day, hour, n in rows)], "and so again"


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.date32(), [dt.date(2026, 11, 26), dt.date(1969, 1, 1), None]),
        (pa.timestamp("us", "UTC"), [dt.datetime(2026, 11, 26, 1, 2, 3, 4, dt.UTC), None]),
        (pa.timestamp("us"), [AT, AT.replace(year=1969)]),
        (pa.bool_(), [True, False, None]),
        (pa.int8(), [-128, 0, 127]),
        (pa.string(), [" ", "null", None, "2026-11-26"]),
    ],
    ids=str,
)
def test_partitions_by_columns_of_each_type(tmp_path: Path, kind: pa.DataType, values: list[Any]) -> None:
    """Each value in turn is replaced, and the others stay."""
    address, schema = str(tmp_path / "table"), pa.schema([("p", kind), ("n", pa.int64())])
    rows = pa.table([pa.array(values, kind), pa.array(range(len(values)), pa.int64())], schema=schema)
    write_deltalake(address, rows, partition_by=["p"])
    for place, value in enumerate(values):
        sink = DeltaSink(address, mode="overwrite-partitions", partition_by="p", on_foreign="append")
        table = Overwriting(tmp_path / "table", sink, LineageId(f"{place}" * 32))
        new = pa.table([pa.array([value], kind), pa.array([place + 100])], schema=schema)
        table.commit(table.staged_table(new))
        numbers = sorted(one["n"] for one in DeltaTable(address).to_pyarrow_table().to_pylist())
        assert numbers == [*range(place + 1, len(values)), *range(100, 101 + place)]
        for one in table.made:
            one.close()


def test_decimals_are_refused_as_partitions(make: Make) -> None:
    """Deltalake writes -20.25 as ``-20.-25``, which nobody can read."""
    schema = pa.schema([("p", pa.decimal128(9, 2)), ("n", pa.int64())])
    with pytest.raises(
        ConfigError, match=r"partitions by column 'p', which is decimal128\(9, 2\), cannot be"
    ):
        make(partition_by="p").sink.check(schema)


def test_what_subtasks_have_staged_is_one_version_and_staged_files_are_removed(make: Make) -> None:
    table = make(partition_by="day")
    table.fill(partition_by=["day"])
    staged = (*table.staged([("mon", 9, 10)]), *table.staged([("mon", 9, 11), ("sun", 9, 12)], index=1))
    result = table.committer().commit(permit(LAST), CommitRequest(CheckpointId(LAST), staged))
    assert (result.rows, result.table_version) == (3, 1)
    assert table.rows() == [*BEFORE[2:], ("mon", 9, 10), ("mon", 9, 11), ("sun", 9, 12)]
    named = {
        Path(one["path"]).name
        for version in (0, 1)
        for one in pa.table(
            DeltaTable(str(table.folder), version=version).get_add_actions(flatten=True)
        ).to_pylist()
    }
    assert {path.name for path in table.folder.rglob("*.parquet")} == named, "old ones stay for readers"


def test_a_missing_table_is_created(make: Make) -> None:
    table = make(partition_by="day")
    table.overwrite(BEFORE[:2])
    assert table.rows() == BEFORE[:2]
    assert DeltaTable(str(table.folder)).metadata().partition_columns == ["day"]


def test_a_column_that_only_the_table_has_is_null(make: Make) -> None:
    table = make(partition_by="day")
    wide = pa.table({"day": ["mon"], "hour": pa.array([1], pa.int32()), "n": [1], "note": ["x"]})
    write_deltalake(str(table.folder), wide, partition_by=["day"])
    table.overwrite([("tue", 2, 2)])
    found = DeltaTable(str(table.folder)).to_pyarrow_table()
    assert sorted(found["note"].to_pylist(), key=str) == [None, "x"]


def test_a_commit_that_is_repeated_replaces_nothing_again(make: Make) -> None:
    """Not even what somebody has added since."""
    table = make(partition_by="day")
    request = CommitRequest(CheckpointId(LAST), table.staged([("mon", 9, 10)]))
    first = table.committer()
    assert first.commit(permit(LAST), request).outcome is CommitOutcome.COMMITTED
    table.fill([("mon", 1, 11)], ["day"])
    again = table.committer(restored=LAST)
    assert again.commit(permit(LAST), request).outcome is CommitOutcome.ALREADY_COMMITTED
    assert table.rows() == [("mon", 9, 10), ("mon", 1, 11)]


def test_what_others_add_meanwhile_is_replaced_as_well(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit is made again on the newest version."""
    table = make(partition_by="day")
    table.fill(partition_by=["day"])
    overwrite, tries = DeltaSinkTable.overwrite, list[int]()

    def and_another(self: DeltaSinkTable, *arguments: Any) -> None:
        if not tries:
            table.fill([("mon", 1, 6), ("tue", 1, 7)], ["day"])
        tries.append(1)
        overwrite(self, *arguments)

    monkeypatch.setattr(DeltaSinkTable, "overwrite", and_another)
    table.overwrite([("mon", 9, 10)])
    assert table.rows() == [*BEFORE[2:], ("tue", 1, 7), ("mon", 9, 10)]
    assert len(tries) == 2


def test_an_outcome_that_is_not_known_is_looked_for(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(partition_by="day")
    table.fill(partition_by=["day"])
    overwrite = DeltaSinkTable.overwrite

    def silent(self: DeltaSinkTable, *arguments: Any) -> None:
        overwrite(self, *arguments)
        raise Unknown("no answer")

    monkeypatch.setattr(DeltaSinkTable, "overwrite", silent)
    table.overwrite([("mon", 9, 10)])
    assert table.rows() == [*BEFORE[2:], ("mon", 9, 10)]


def test_staged_rows_that_cannot_be_read_change_nothing(make: Make) -> None:
    table = make(partition_by="day")
    table.fill(partition_by=["day"])
    request = CommitRequest(CheckpointId(LAST), table.staged([("mon", 9, 10)]))
    [file] = list(table.folder.glob("*.parquet"))
    content = bytearray(file.read_bytes())
    content[4:40] = bytes(36)
    file.write_bytes(content)
    with pytest.raises(Unreachable, match="staged rows of table"):
        table.committer().commit(permit(LAST), request)
    assert table.rows() == BEFORE


def test_a_savepoint_is_finalized_by_the_same_replacement(make: Make) -> None:
    table = make(partition_by="day")
    table.fill(partition_by=["day"])
    staged = table.staged([("mon", 9, 10)])
    committer = committer_of("delta", staged)
    table.made.append(committer)
    committer.open(context(checkpointing=False))
    committer.commit(permit(LAST), CommitRequest(CheckpointId(LAST), staged))
    assert table.rows() == [*BEFORE[2:], ("mon", 9, 10)]


def test_checkpoints_overwrite_nothing(make: Make) -> None:
    writer = make(partition_by="day").sink.create_writer()
    with pytest.raises(ConfigError, match="mode='overwrite-partitions' replaces partitions once"):
        writer.open(context(), [])

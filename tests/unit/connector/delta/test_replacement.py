"""A range of a table is replaced by one commit, once, and never over the change of somebody else."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import unistream as us
from unistream.base.errors import ConfigError, Unreachable, UserCodeError
from unistream.connector.delta.compaction_watch import SEALED
from unistream.connector.delta.table import DeltaSinkTable
from unistream.model.time_range import TimeRange
from unistream.port.replacement import NewRows, RangeChanged, RangeTarget

HOUR_MS = 3_600_000
RANGE = TimeRange(begin_ms=4 * HOUR_MS, end_ms=8 * HOUR_MS)
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - of columns with and without a zone


def rows(hours: list[int | None], n: int, *, tz: str | None = "UTC", part: str = "a") -> pa.Table:
    times = [None if hour is None else EPOCH + dt.timedelta(hours=hour) for hour in hours]
    return pa.table(
        {
            "part": pa.array([part] * len(hours)),
            "at": pa.array(times, pa.timestamp("us", tz)),
            "n": pa.array([n] * len(hours), pa.int64()),
        }
    )


def new_rows(table: pa.Table) -> NewRows:
    return NewRows(schema=table.schema, read=lambda: table.to_reader(max_chunksize=2))


def found(path: Path) -> list[tuple[int | None, int]]:
    table = DeltaTable(str(path)).to_pyarrow_table()
    pairs = [(None if row["at"] is None else row["at"].hour, row["n"]) for row in table.to_pylist()]
    return sorted(pairs, key=str)


@pytest.fixture(params=["UTC", None], ids=["UTC", "without a zone"])
def tz(request: pytest.FixtureRequest) -> str | None:
    zone: str | None = request.param
    return zone


@pytest.fixture
def path(tmp_path: Path, tz: str | None) -> Path:
    path = tmp_path / "t"
    write_deltalake(path, rows([*range(10), None], 1, tz=tz), partition_by=["part"])
    write_deltalake(path, rows([3, 6, 9], 2, tz=tz, part="b"), mode="append")
    return path


def target(path: Path, column: str = "at") -> RangeTarget:
    return us.DeltaSink(str(path), partition_by=["part"]).range_target(column)


def test_rows_of_the_range_go_and_all_others_stay(path: Path, tz: str | None) -> None:
    """A row without a time is in no range."""
    table = target(path)
    fence = table.look()
    assert (table.count(RANGE), table.newest_ms()) == (5, 9 * HOUR_MS)
    done = table.replace("x", RANGE, fence, new_rows(rows([4, 5, 7], 9, tz=tz)))
    assert done.version == fence.version + 1 == DeltaTable(str(path)).version()
    kept = [(hour, 1) for hour in (0, 1, 2, 3, 8, 9, None)] + [(3, 2), (9, 2)]
    assert found(path) == sorted([*kept, (4, 9), (5, 9), (7, 9)], key=str)


def test_it_is_done_once(path: Path, tz: str | None) -> None:
    table = target(path)
    fence = table.look()
    first = table.replace("x", RANGE, fence, new_rows(rows([4], 9, tz=tz)))
    before = found(path)
    write_deltalake(path, rows([5, 20], 7, tz=tz), mode="append")
    assert table.find("x") == first
    assert table.replace("x", RANGE, fence, None) == first
    assert found(path) == sorted([*before, (5, 7), (20, 7)], key=str)
    assert table.find("y") is None


def test_no_new_rows_are_a_deletion(path: Path) -> None:
    table = target(path)
    table.replace("x", RANGE, table.look(), None)
    assert table.count(RANGE) == 0
    assert table.count(TimeRange(begin_ms=0, end_ms=4 * HOUR_MS)) == 5


def append(hour: int) -> Callable[[Path, str | None], None]:
    return lambda path, tz: write_deltalake(path, rows([hour], 7, tz=tz), mode="append")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(append(5), id="a row is added"),
        pytest.param(lambda path, _: DeltaTable(str(path)).delete("n = 2"), id="rows are deleted"),
        pytest.param(lambda path, _: DeltaTable(str(path)).update({"n": "3"}), id="rows are changed"),
        pytest.param(lambda path, _: DeltaTable(str(path)).delete(), id="all rows are deleted"),
    ],
)
def test_a_change_of_the_range_since_the_fence_is_refused(
    path: Path, tz: str | None, change: Callable[[Path, str | None], object]
) -> None:
    table = target(path)
    fence = table.look()
    change(path, tz)
    before = found(path)
    with pytest.raises(RangeChanged, match="somebody else changed rows of the range"):
        table.replace("x", RANGE, fence, new_rows(rows([4], 9, tz=tz)))
    assert found(path) == before
    assert table.find("x") is None


def test_rows_that_others_add_elsewhere_stay(path: Path, tz: str | None) -> None:
    table = target(path)
    fence = table.look()
    for hour in (8, 20):
        append(hour)(path, tz)
    done = table.replace("x", RANGE, fence, new_rows(rows([4], 9, tz=tz)))
    assert done.version == fence.version + 3
    assert {(4, 9), (8, 7), (20, 7)} < set(found(path))
    assert table.count(RANGE) == 1


def test_a_compaction_changes_no_rows(path: Path, tz: str | None) -> None:
    table = target(path)
    for hour in (5, 6):
        append(hour)(path, tz)
    fence = table.look()
    for _ in range(2):
        DeltaTable(str(path)).optimize.compact()
        DeltaTable(str(path)).optimize.z_order(["n"])
        sealed = DeltaSinkTable.open(str(path), {})
        assert sealed is not None
        sealed.seal(SEALED)
    assert DeltaTable(str(path)).version() > fence.version
    table.replace("x", RANGE, fence, new_rows(rows([4], 9, tz=tz)))
    assert table.count(RANGE) == 1
    assert {(4, 9), (3, 1), (9, 2)} < set(found(path))


def test_a_change_behind_a_compaction_is_refused(path: Path, tz: str | None) -> None:
    table = target(path)
    append(6)(path, tz)
    fence = table.look()
    DeltaTable(str(path)).optimize.compact()
    append(5)(path, tz)
    with pytest.raises(RangeChanged):
        table.replace("x", RANGE, fence, new_rows(rows([4], 9, tz=tz)))
    assert {(5, 7), (6, 7)} < set(found(path))


def test_a_zombie_of_the_same_backfill_cannot_replace_it_again(path: Path, tz: str | None) -> None:
    """It has looked before the other one committed: here, it comes from the version at the fence."""
    table = target(path)
    fence = table.look()
    table.replace("x", RANGE, fence, new_rows(rows([4], 9, tz=tz)))
    with pytest.raises(RangeChanged):
        table.replace("y", RANGE, fence, new_rows(rows([5], 8, tz=tz)))
    assert table.count(RANGE) == 1


def test_another_table_at_the_same_path_is_refused(path: Path, tz: str | None) -> None:
    table = target(path)
    fence = table.look()
    path.rename(path.with_name("gone"))
    write_deltalake(path, rows([5], 7, tz=tz), partition_by=["part"])
    with pytest.raises(ConfigError, match="another one than at the fence"):
        table.replace("x", RANGE, fence, None)
    assert found(path) == [(5, 7)]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (rows([4], 9).append_column("more", pa.array([1])), "no column 'more'"),
        (rows([4], 9).set_column(2, "n", pa.array(["x"])), "column 'n' is int64"),
    ],
)
def test_rows_that_do_not_fit_are_refused(tmp_path: Path, wrong: pa.Table, text: str) -> None:
    write_deltalake(tmp_path / "t", rows([1], 1), partition_by=["part"])
    table = target(tmp_path / "t")
    with pytest.raises(ConfigError, match=text):
        table.replace("x", RANGE, table.look(), new_rows(wrong))
    assert DeltaTable(str(tmp_path / "t")).version() == 0


@pytest.mark.parametrize(("column", "text"), [("n", "'n' is int64; the time"), ("when", "no column 'when'")])
def test_the_column_has_to_be_a_timestamp_of_the_table(path: Path, column: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        target(path, column).look()


@pytest.mark.parametrize("text", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_a_text_that_would_come_back_as_null_is_refused(path: Path, tz: str | None, text: str) -> None:
    table, before = target(path), found(path)
    with pytest.raises(
        UserCodeError, match=f"is partitioned by 'part', where '{text}' would come back as null"
    ):
        table.replace("x", RANGE, table.look(), new_rows(rows([4], 9, tz=tz, part=text)))
    assert found(path) == before


def test_partitions_of_decimals_are_refused(tmp_path: Path) -> None:
    """deltalake, which copies the rows that are not in the range, would write -1.50 as ``-1.-50``."""
    held = rows([3], 1).append_column("d", pa.array([Decimal("2.00")], pa.decimal128(6, 2)))
    write_deltalake(tmp_path / "t", held, partition_by=["d"])
    with pytest.raises(ConfigError, match=r"partitions by column 'd', which is decimal128\(6, 2\)"):
        target(tmp_path / "t").look()


def test_a_missing_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no table at"):
        target(tmp_path / "t").look()


def test_columns_that_only_the_table_has_are_null(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", rows([5], 1).append_column("more", pa.array([3])))
    table = us.DeltaSink(str(tmp_path / "t")).range_target("at")
    table.replace("x", RANGE, table.look(), new_rows(rows([4], 9)))
    [row] = DeltaTable(str(tmp_path / "t")).to_pyarrow_table().to_pylist()
    assert (row["n"], row["more"]) == (9, None)


@pytest.mark.parametrize(
    ("column", "text"), [("when", "no column of the stream"), ("n", "has to be a timestamp")]
)
def test_a_sink_checks_its_time_column(tmp_path: Path, column: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        us.DeltaSink(str(tmp_path / "t"), time_column=column).check(rows([1], 1).schema)


def test_a_name_that_needs_quotes(tmp_path: Path) -> None:
    at = pa.array([EPOCH, EPOCH + dt.timedelta(hours=5)], pa.timestamp("us"))
    write_deltalake(tmp_path / "t", pa.table({'Start "of" it': at}))
    table = target(tmp_path / "t", 'Start "of" it')
    assert (table.count(RANGE), table.newest_ms()) == (1, 5 * HOUR_MS)


def test_without_rows_nothing_is_newest(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", rows([], 1))
    assert (target(tmp_path / "t").count(RANGE), target(tmp_path / "t").newest_ms()) == (0, None)


def test_a_file_that_is_gone_is_told(path: Path) -> None:
    for file in path.rglob("*.parquet"):
        file.unlink()
    with pytest.raises(Unreachable, match=r"table .*/t could not be read: .*\.parquet"):
        target(path).count(RANGE)

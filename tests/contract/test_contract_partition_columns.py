"""Columns in the names of folders: the file source reads what the file sink and pyarrow write there."""

from __future__ import annotations

import datetime as dt
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.support.harness.source_driver import SourceDriver
from tests.written_files import write_files
from unistream.base.errors import ConfigError, UserCodeError
from unistream.connector.catalogue import create_discovery
from unistream.connector.file import FileSink, FileSource
from unistream.model.time_range import TimeRange
from unistream.port.projection import Selection
from unistream.port.source import Rows, Source

COMPILES_WITHIN_S: Final = 120.0
MIDNIGHT: Final = dt.datetime(2026, 1, 31)  # noqa: DTZ001


def rows_of(source: Source) -> list[dict[str, Any]]:
    splits = create_discovery(source.info()).discover()
    with SourceDriver(source, splits, COMPILES_WITHIN_S) as driver:
        batches = [polled.records for polled in driver.polled() if isinstance(polled, Rows)]
    return pa.Table.from_batches(batches, source.schema).to_pylist()


VALUES: Final[dict[str, tuple[pa.DataType, list[Any]]]] = {
    "text": (
        pa.string(),
        ["a/b", "100%", "k=v", "a b", "ü", ".x", "_y", "%2F", "NULL", "1", "~", "a:b", None],
    ),
    "text that looks like numbers": (pa.string(), ["007", "1", "-0"]),
    "text that looks like days": (pa.large_string(), ["2026-01-31", "2026-02-01"]),
    "whole numbers": (pa.int64(), [0, -1, 2**63 - 1, -(2**63), None]),
    "great whole numbers": (pa.uint64(), [0, 2**64 - 1]),
    "small whole numbers": (pa.int8(), [-128, 127]),
    "booleans": (pa.bool_(), [True, False, None]),
    "floats": (pa.float64(), [0.1, -1e300, 5e-324, float("inf"), None]),
    "narrow floats": (pa.float32(), [0.10000000149011612, 1.5]),
    "decimals": (pa.decimal128(38, 10), [Decimal("1.5"), Decimal("-0.0000000001"), Decimal(10**27), None]),
    "days": (pa.date32(), [dt.date(1, 1, 1), dt.date(2026, 2, 28), dt.date(9999, 12, 31), None]),
    "times": (
        pa.timestamp("us"),
        [MIDNIGHT, MIDNIGHT.replace(microsecond=1), MIDNIGHT.replace(year=1), None],
    ),
    "times of seconds": (pa.timestamp("s"), [MIDNIGHT]),
    "times with a zone": (
        pa.timestamp("ms", "Europe/Berlin"),
        [MIDNIGHT.replace(tzinfo=dt.UTC), MIDNIGHT.replace(tzinfo=dt.UTC, microsecond=1000), None],
    ),
    "times of a day": (pa.time64("us"), [dt.time(23, 59, 59, 999_999), dt.time(0), None]),
    "coarse times of a day": (pa.time32("ms"), [dt.time(9, 15, 0, 1000)]),
    "durations": (pa.duration("us"), [dt.timedelta(-1, 3), dt.timedelta(400, 0, 1), dt.timedelta(0), None]),
    "a dictionary": (pa.dictionary(pa.int32(), pa.string()), ["k", "l", None]),
}


def folders_of(values: list[Any], kind: pa.DataType) -> pa.Table:
    """Two rows of each value, far from each other."""
    n = len(values)
    return pa.table({"n": range(2 * n), "k": pa.array([*values, *values], kind), "m": ["x"] * (2 * n)})


def by_number(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["n"])


@pytest.mark.parametrize(
    ("values", "format"), [*((values, "parquet") for values in VALUES), ("text", "json"), ("times", "json")]
)
def test_what_a_sink_writes_by_folder_is_read_again(tmp_path: Path, values: str, format: Any) -> None:
    kind, own = VALUES[values]
    rows = folders_of(own, kind)
    write_files(FileSink(str(tmp_path), format=format, partition_by=["k"]), rows)
    read = rows_of(FileSource(str(tmp_path), format=format, schema=rows.schema))
    assert by_number(read) == rows.to_pylist()
    assert list(read[0]) == ["n", "k", "m"]
    if format == "parquet":
        inferred = FileSource(str(tmp_path))
        assert inferred.schema == rows.select(["n", "m", "k"]).schema
        assert by_number(rows_of(inferred)) == rows.to_pylist()


def test_nan_is_read_again(tmp_path: Path) -> None:
    write_files(
        FileSink(str(tmp_path), partition_by=["k"]), pa.table({"n": [1, 2], "k": [float("nan"), -0.0]})
    )
    assert [str(row["k"]) for row in by_number(rows_of(FileSource(str(tmp_path))))] == ["nan", "-0.0"]


def test_two_columns_and_folders_of_times_are_read_again(tmp_path: Path) -> None:
    """Those of times have no name of a column, unless the format gives them one."""
    rows = pa.table({"n": [1, 2, 3], "a": ["x", "y", "x"], "b": [1, 2, 2], "at": pa.array([MIDNIGHT] * 3)})
    for name, format, more in (("plain", "%Y/%m", {}), ("named", "day=%Y-%m-%d", {"day": MIDNIGHT.date()})):
        sink = FileSink(
            str(tmp_path / name), partition_by=["a", "b"], bucket_by_time=format, time_column="at"
        )
        write_files(sink, rows)
        found = by_number(rows_of(FileSource(str(tmp_path / name))))
        assert found == [row | more for row in rows.select(["n", "at", "a", "b"]).to_pylist()]


def test_what_pyarrow_writes_is_read(tmp_path: Path) -> None:
    rows = folders_of(["a/b", "k=v", "ü", None], pa.string())
    flavor = ds.partitioning(pa.schema([("k", pa.string())]), flavor="hive")
    ds.write_dataset(rows, tmp_path, format="parquet", partitioning=flavor)
    assert by_number(rows_of(FileSource(str(tmp_path), schema=rows.schema))) == rows.to_pylist()


# --- types ----------------------------------------------------------------------------------------


def lines(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


@pytest.mark.parametrize(
    ("folders", "kind"),
    [
        (["1", "-2", "__HIVE_DEFAULT_PARTITION__"], pa.int64()),
        (["01", "12"], pa.string()),
        (["1", "x"], pa.string()),
        (["9223372036854775808"], pa.string()),
        (["2026-01-31", "0001-01-01"], pa.date32()),
        (["2026-02-30"], pa.string()),
        (["2026-01-31 09%3A15%3A00", "2026-01-31 09:15:00.5"], pa.timestamp("us")),
        (["2026-01-31", "2026-01-31 09:15:00"], pa.string()),
        (["1.5"], pa.string()),
        (["true"], pa.string()),
        (["__HIVE_DEFAULT_PARTITION__"], pa.string()),
        ([""], pa.string()),
    ],
)
def test_a_type_is_inferred_where_its_values_have_one_text(
    tmp_path: Path, folders: list[str], kind: pa.DataType
) -> None:
    lines(tmp_path, {f"k={one}/a.json": '{"n": 1}' for one in folders})
    assert FileSource(str(tmp_path), format="json").schema == pa.schema([("n", pa.int64()), ("k", kind)])


def test_a_type_can_be_given(tmp_path: Path) -> None:
    lines(tmp_path, {"month=01/a.csv": "n\n1\n", "month=02/a.csv": "n\n2\n"})
    schema = pa.schema([("month", pa.int8()), ("n", pa.int64())])
    source = FileSource(str(tmp_path), format="csv", schema=schema)
    assert rows_of(source) == [{"month": 1, "n": 1}, {"month": 2, "n": 2}]


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (
            pa.field("k", pa.int64()),
            "'x' in the name of its folder is no int64, which column 'k' is; give",
        ),
        (pa.field("k", pa.date32()), "'x' in the name of its folder is no date32"),
        (pa.field("k", pa.list_(pa.string())), "'x' in the name of its folder is no list"),
        (pa.field("k", pa.month_day_nano_interval()), "'x' in the name of its folder is no month_day_nano"),
    ],
)
def test_a_folder_that_does_not_fit_its_column_is_named(tmp_path: Path, field: pa.Field, text: str) -> None:
    lines(tmp_path, {"k=x/a.json": '{"n": 1}'})
    source = FileSource(str(tmp_path), format="json", schema=pa.schema([("n", pa.int64()), field]))
    with pytest.raises(ConfigError, match=f"file {tmp_path}/k=x/a.json: {text}"):
        rows_of(source)


def test_a_null_where_none_may_be_is_refused(tmp_path: Path) -> None:
    lines(tmp_path, {"k=__HIVE_DEFAULT_PARTITION__/a.json": '{"n": 1}'})
    schema = pa.schema([("n", pa.int64()), pa.field("k", pa.string(), nullable=False)])
    with pytest.raises(ConfigError, match="column 'k' is null in the name of its folder, and is declared"):
        rows_of(FileSource(str(tmp_path), format="json", schema=schema))


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [True, False], ids=["schema", "inferred"])
@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
def test_a_column_of_the_files_and_of_their_folders_is_refused(
    tmp_path: Path, format: Any, given: bool
) -> None:
    (tmp_path / "k=1").mkdir()
    path = tmp_path / "k=1" / f"a.{format}"
    if format == "parquet":
        pq.write_table(pa.table({"n": [1], "k": [2]}), path)
    else:
        path.write_text("n,k\n1,2\n" if format == "csv" else '{"n": 1, "k": 2}')
    schema = pa.schema([("n", pa.int64()), ("k", pa.int64())])
    source = FileSource(str(tmp_path), format=format, schema=schema if given else None)
    text = (
        f"{path} has a column 'k', and its folder k=… says what it is as well; leave it out with columns=[…]"
    )
    with pytest.raises(ConfigError, match=re.escape(text)):
        rows_of(source)
    assert rows_of(FileSource(str(tmp_path), format=format, columns=["n"])) == [{"n": 1}]
    assert rows_of(FileSource(str(tmp_path), format=format, partitions=False)) == [{"n": 1, "k": 2}]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["k=1/a.json", "b.json"], "b.json is in no such folder, and .*/k=1/a.json in k=…;"),
        (["k=1/a.json", "k=1/l=2/b.json"], "k=1/a.json is in k=…, and .*/k=1/l=2/b.json in k=…/l=…;"),
        (["k=1/a.json", "K=1/b.json"], "K=1/b.json is in K=…, and .*/k=1/a.json in k=…;"),
        (["k=1/k=2/a.json"], "k=1/k=2/a.json: two of its folders name column 'k'"),
        (["k=%FF/a.json"], "'%FF', which is not UTF-8"),
    ],
)
def test_folders_that_do_not_agree_are_refused(tmp_path: Path, names: list[str], text: str) -> None:
    lines(tmp_path, {name: '{"n": 1}' for name in names})
    with pytest.raises(ConfigError, match=text):
        _ = FileSource(str(tmp_path), format="json").schema
    given = pa.schema([("n", pa.int64()), ("k", pa.string()), ("l", pa.string())])
    with pytest.raises(ConfigError):
        rows_of(FileSource(str(tmp_path), format="json", schema=given))
    source = FileSource(str(tmp_path), format="json", partitions=False)
    assert rows_of(source) == [{"n": 1}] * len(names)


def test_a_file_that_comes_in_no_such_folder_is_noticed_when_the_job_starts(tmp_path: Path) -> None:
    lines(tmp_path, {"k=1/a.json": '{"n": 1}'})
    source = FileSource(str(tmp_path), format="json")
    assert source.schema.names == ["n", "k"]
    lines(tmp_path, {"b.json": '{"n": 2}'})
    with pytest.raises(ConfigError, match=r"b\.json is in no such folder"):
        create_discovery(source.info()).discover()


# --- what need not be read ------------------------------------------------------------------------

DAYS: Final = pa.table({"n": [0, 1, 2, 3], "day": [dt.date(2026, 1, day) for day in (1, 2, 3, 4)]})


def by_day(folder: Path, format: Any) -> FileSource:
    write_files(FileSink(str(folder), format=format, partition_by=["day"]), DAYS)
    return FileSource(str(folder), format=format, schema=DAYS.schema)


@pytest.mark.parametrize("format", ["parquet", "json"])
@pytest.mark.parametrize(
    ("selected", "read"),
    [
        (pc.field("day") > dt.date(2026, 1, 2), [2, 3]),
        ((pc.field("day") > dt.date(2026, 1, 2)) & (pc.field("n") < 9), [2, 3]),
        ((pc.field("day") > dt.date(2026, 1, 2)) | (pc.field("n") >= 0), [0, 1, 2, 3]),
        (pc.field("day").is_null(), []),
        (pc.field("day").isin([dt.date(2026, 1, 4)]), [3]),
    ],
    ids=["day", "and another", "or another", "null", "in"],
)
def test_files_in_folders_of_other_values_are_not_read(
    tmp_path: Path, format: Any, selected: pc.Expression, read: list[int]
) -> None:
    """They are damaged."""
    source = by_day(tmp_path, format)
    splits = create_discovery(source.info()).discover()
    for number, path in enumerate(sorted(tmp_path.rglob("part-*"))):
        if number not in read:
            path.write_bytes(b"?" * path.stat().st_size)
    with SourceDriver(source.reading_rows(Selection(selected, ("day", "n"))), splits) as driver:
        found = [row["n"] for row in driver.all_rows()]
    assert sorted(found) == read


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_an_event_time_in_the_name_of_a_folder_orders_and_selects_files(tmp_path: Path, format: Any) -> None:
    source = by_day(tmp_path, format)
    info = msgspec.structs.replace(source.info(), timestamp_column="day", timestamp_type="date32[day]")
    midnights = [1_767_225_600_000 + day * 86_400_000 for day in range(4)]
    splits = create_discovery(info).discover()
    assert sorted(split.min_timestamp for split in splits) == midnights
    some = source.within("day", TimeRange(begin_ms=midnights[1], end_ms=midnights[3]))
    assert sorted(row["n"] for row in rows_of(some)) == [1, 2]


def test_a_null_in_the_folder_is_no_event_time(tmp_path: Path) -> None:
    lines(tmp_path, {"at=__HIVE_DEFAULT_PARTITION__/a.json": '{"n": 1}'})
    schema = pa.schema([("n", pa.int64()), ("at", pa.int64())])
    with pytest.raises(UserCodeError, match="in the name of its folder: the timestamp column 'at' is null"):
        rows_of(FileSource(str(tmp_path), format="json", schema=schema).timed_by("at"))


@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
def test_columns_of_folders_alone_have_as_many_rows(tmp_path: Path, format: Any) -> None:
    for k, n in ((1, 3), (2, 1)):
        rows = pa.table({"n": [0] * n, "m": ["x"] * n})
        path = tmp_path / f"k={k}" / f"a.{format}"
        path.parent.mkdir()
        if format == "parquet":
            pq.write_table(rows, path)
        else:
            cells = ["0,x"] * n if format == "csv" else [json.dumps(row) for row in rows.to_pylist()]
            path.write_text("\n".join(["n,m"] * (format == "csv") + cells))
    expected = [{"k": 1}] * 3 + [{"k": 2}]
    assert rows_of(FileSource(str(tmp_path), format=format, columns=["k"])) == expected
    assert rows_of(FileSource(str(tmp_path), format=format).reading(frozenset("k"))) == expected


def test_dead_letters_are_read_again_with_the_columns_of_their_folders(tmp_path: Path) -> None:
    lines(tmp_path, {"k=1/a.json": '{"n": "x"}\n'})
    schema = pa.schema([("n", pa.int64()), ("k", pa.int64())])
    source = FileSource(str(tmp_path), format="json", schema=schema, on_bad_record="dead-letter")
    letters = pa.Table.from_pylist(
        [{"path": f"{tmp_path}/k=1/a.json", "line": 1, "byte": 0, "reason": "", "raw": b'{"n": 5}'}],
        source.dead_letter_schema,
    )
    [row] = source.read_letters(letters).rows
    assert row.to_pylist() == [{"n": 5, "k": 1}]

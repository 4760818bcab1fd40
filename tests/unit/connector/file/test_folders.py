"""What a file source does with folders that are more than folders: tables, partitions, files of others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from unistream.base.errors import ConfigError
from unistream.connector.catalogue import create_discovery
from unistream.connector.delta import DeltaSource
from unistream.connector.file import FileSink, FileSource
from unistream.connector.file.listing import list_files

ROWS = pa.table({"id": [1, 2, 3], "day": ["a", "a", "b"]})


def delta(folder: Path) -> Path:
    write_deltalake(str(folder), ROWS)
    write_deltalake(str(folder), ROWS, mode="overwrite")
    return folder


def delta_partitioned(folder: Path) -> Path:
    write_deltalake(str(folder), ROWS, partition_by=["day"])
    return folder


def iceberg(folder: Path) -> Path:
    (folder / "metadata").mkdir(parents=True)
    (folder / "metadata" / "00000-1f2e.metadata.json").write_text("{}")
    (folder / "data").mkdir()
    pq.write_table(ROWS, folder / "data" / "a.parquet")
    return folder


def hudi(folder: Path) -> Path:
    (folder / ".hoodie").mkdir(parents=True)
    (folder / ".hoodie" / "hoodie.properties").write_text("")
    pq.write_table(ROWS, folder / "a.parquet")
    return folder


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (delta, "a Delta table"),
        (delta_partitioned, "a Delta table"),
        (iceberg, "an Iceberg table"),
        (hudi, "a Hudi table"),
    ],
)
@pytest.mark.parametrize(
    "path",
    [
        pytest.param("lake/table", id="the table"),
        pytest.param("lake/table/", id="with a slash"),
        pytest.param("lake", id="a folder that it is in"),
        pytest.param("lake/table/**/*.parquet", id="its files by a pattern"),
        pytest.param("lake/*/*", id="a pattern from above"),
    ],
)
def test_the_folder_of_a_table_is_refused(
    tmp_path: Path, make: Callable[[Path], Path], kind: str, path: str
) -> None:
    (tmp_path / "lake").mkdir()
    table = make(tmp_path / "lake" / "table")
    (table / "_staged").mkdir()
    if path == "lake/*/*" and not list(table.glob("*.parquet")):
        pq.write_table(ROWS, table / "b.parquet")
    source = FileSource(str(tmp_path / path) + ("/" if path.endswith("/") else ""))
    text = f"{table} is {kind}: its folder also has files that were removed"
    with pytest.raises(ConfigError, match=text):
        _ = source.schema
    with pytest.raises(ConfigError, match=text):
        create_discovery(source.info()).discover()


@pytest.mark.parametrize(
    ("make", "sub"), [(delta_partitioned, "day=a"), (iceberg, "data"), (delta_partitioned, "day=*/*.parquet")]
)
def test_a_folder_in_a_table_is_refused(tmp_path: Path, make: Callable[[Path], Path], sub: str) -> None:
    make(tmp_path / "table")
    with pytest.raises(ConfigError, match=r"/table is an? (Delta|Iceberg) table"):
        _ = FileSource(str(tmp_path / "table" / sub)).schema


def test_a_delta_table_has_a_source_of_its_own(tmp_path: Path) -> None:
    """As the refusal advises."""
    table = delta(tmp_path / "table")
    with pytest.raises(ConfigError, match=rf"read it with us.DeltaSource\('{table}'\)$"):
        _ = FileSource(str(table)).schema
    assert DeltaSource(str(table)).schema.names == ["id", "day"]


def test_the_files_that_a_table_consists_of_can_be_named(tmp_path: Path) -> None:
    uris = DeltaTable(str(delta(tmp_path / "table"))).file_uris()
    source = FileSource(uris)
    assert source.schema.names == ["id", "day"]
    splits = create_discovery(source.info()).discover()
    assert len(splits) == len(uris) == 1


def test_the_named_files_of_a_partitioned_table_have_lost_a_column(tmp_path: Path) -> None:
    uris = DeltaTable(str(delta_partitioned(tmp_path / "table"))).file_uris()
    with pytest.raises(ConfigError, match=r"day=…"):
        _ = FileSource(uris).schema


# --- columns in the names of folders --------------------------------------------------------------


@pytest.fixture
def by_day(tmp_path: Path) -> Path:
    """Below a folder that looks like a column and is none, since it is above what is given."""
    for day, ids in (("a", [1, 2]), ("b", [3])):
        (tmp_path / "zone=1" / f"day={day}").mkdir(parents=True)
        pq.write_table(pa.table({"id": ids}), tmp_path / "zone=1" / f"day={day}" / "part.parquet")
    return tmp_path / "zone=1"


@pytest.mark.parametrize("path", ["", "*/*.parquet", "day=*/*", "**/part.parquet"])
def test_folders_below_the_path_are_columns(by_day: Path, path: str) -> None:
    assert FileSource(str(by_day / path)).schema == pa.schema([("id", pa.int64()), ("day", pa.string())])


def test_several_paths_that_differ_in_such_a_folder_lose_nothing_silently(by_day: Path) -> None:
    with pytest.raises(ConfigError, match=r"day=….*would be lost.*has id\..*columns=\[…\]"):
        _ = FileSource([str(by_day / "day=a"), str(by_day / "day=b")]).schema


@pytest.mark.parametrize(
    ("path", "options"),
    [
        pytest.param("day=a", {}, id="one folder that is named"),
        pytest.param("day=a/*.parquet", {}, id="its files"),
        pytest.param("", {"columns": ["id"]}, id="the wanted columns are named"),
        pytest.param("", {"partitions": False}, id="folders mean nothing"),
        pytest.param("", {"schema": pa.schema([("id", pa.int64())])}, id="the columns are given"),
    ],
)
def test_rows_without_that_column_can_be_meant(by_day: Path, path: str, options: dict[str, Any]) -> None:
    assert FileSource(str(by_day / path), **options).schema.names == ["id"]


# --- files that are passed over -------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "**/*.parquet", "**"])
def test_files_of_others_are_passed_over_as_spark_does(tmp_path: Path, path: str) -> None:
    names = ["a.parquet", "b/c.parquet", "_SUCCESS", ".a.parquet.crc", "_staged/d.parquet", ".e.parquet"]
    names += ["_temporary/0/f.parquet", "g.parquet._COPYING_", "_day=1/h.parquet"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(ROWS, tmp_path / name)
    found = [file.path for file in list_files([str(tmp_path / path)], {})]
    assert [name[len(str(tmp_path)) + 1 :] for name in found] == [
        "_day=1/h.parquet",
        "a.parquet",
        "b/c.parquet",
    ]


def test_a_hidden_file_that_is_named_is_read(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "_a.parquet")
    assert len(list_files([str(tmp_path / "_a.parquet")], {})) == 1


def test_the_folder_of_a_file_sink_shows_what_is_committed(tmp_path: Path) -> None:
    assert FileSink(str(tmp_path)).path == str(tmp_path)
    for name in (".part-1.parquet", "_staged/part-2.parquet", "_unistream/l-s/1.json", "part-0.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(ROWS, tmp_path / name)
    assert [file.path for file in list_files([str(tmp_path)], {})] == [str(tmp_path / "part-0.parquet")]

"""Tables with column mapping, as Spark writes them: files and log have other names than the table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.connector.delta.delta_tables import after, commit, find, parts, read, values
from unistream.base.errors import ConfigError
from unistream.connector.common.columns_by_id import with_id
from unistream.connector.delta import DeltaSource, read_table
from unistream.connector.delta.column_mapping import MODE
from unistream.connector.delta.source_log import Metadata
from unistream.connector.delta.source_table import facts_of
from unistream.connector.delta.table import DeltaSinkTable

KINDS = {pa.int64(): "long", pa.int32(): "integer", pa.string(): "string"}
Column = tuple[str, int, str, Any]
"""Name, id, physical name, and Arrow type; of a struct its columns."""

INNER: Column = ("x y", 4, "c-4", pa.int32())
COLUMNS: list[Column] = [
    ("i", 1, "c-1", pa.int64()),
    ("b c", 2, "c-2", pa.string()),
    ("s", 3, "c-3", [INNER]),
    ("p", 5, "c-5", pa.string()),
]
ROWS = [
    {"i": 1, "b c": "x", "s": {"x y": 5}, "p": "one"},
    {"i": 2, "b c": None, "s": None, "p": "one"},
    {"i": 3, "b c": "z", "s": {"x y": None}, "p": "one"},
]


def logged(column: Column) -> dict[str, Any]:
    name, id_, physical, kind = column
    inner = {"type": "struct", "fields": list(map(logged, kind))} if isinstance(kind, list) else KINDS[kind]
    metadata = {"delta.columnMapping.id": id_, "delta.columnMapping.physicalName": physical}
    return {"name": name, "type": inner, "nullable": True, "metadata": metadata}


def metadata(columns: list[Column], mode: str) -> dict[str, Any]:
    return {
        "metaData": {
            "id": "t",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": list(map(logged, columns))}),
            "partitionColumns": [one[0] for one in columns if one[2] == "c-5"],
            "configuration": {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "9"},
            "createdTime": 1,
        }
    }


def stored(column: Column, rename: Callable[[str], str], ids: bool) -> pa.Field:
    _, id_, physical, kind = column
    inner = [stored(one, rename, ids) for one in kind] if isinstance(kind, list) else None
    field = pa.field(rename(physical), kind if inner is None else pa.struct(inner))
    return with_id(field, id_) if ids else field


def add(
    table: Path,
    version: int,
    columns: list[Column],
    rows: list[dict[str, Any]],
    *actions: dict[str, Any],
    rename: Callable[[str], str] = str,
    ids: bool = True,
) -> None:
    """A commit with a file of these rows, all of one partition. `rename`: names of the file, from the
    physical ones."""
    inside = [one for one in columns if one[2] != "c-5"]

    def plain(row: dict[str, Any], among: list[Column]) -> dict[str, Any]:
        return {
            rename(physical): plain(row[name], kind) if isinstance(kind, list) and row[name] else row[name]
            for name, _, physical, kind in among
        }

    schema = pa.schema([stored(one, rename, ids) for one in inside])
    path = table / f"{version}.parquet"
    path.parent.mkdir(exist_ok=True)
    (table / "_delta_log").mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist([plain(row, inside) for row in rows], schema), path)
    first = next(one for one in columns if one[3] == pa.int64())
    numbers = [row[first[0]] for row in rows]
    partition = next(({"c-5": row["p"]} for row in rows if "p" in row), {"c-5": "one"})
    stats = {
        "numRecords": len(rows),
        "minValues": {first[2]: min(numbers)},
        "maxValues": {first[2]: max(numbers)},
    }
    file = {
        "path": path.name,
        "size": path.stat().st_size,
        "partitionValues": partition,
        "modificationTime": 1,
        "dataChange": True,
        "stats": json.dumps(stats),
    }
    commit(table, version, [*actions, {"add": file}])


PROTOCOL = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    add(tmp_path / "t", 0, COLUMNS, ROWS, PROTOCOL, metadata(COLUMNS, "name"))
    return tmp_path / "t"


@pytest.mark.parametrize(
    ("mode", "rename", "ids"),
    [
        pytest.param("name", str, True, id="by name"),
        pytest.param("name", str, False, id="by name, without ids"),
        pytest.param("id", str, True, id="by id"),
        pytest.param("id", lambda name: f"zz {name}", True, id="by id, with names of their own"),
        pytest.param("id", str, False, id="by id, without ids"),
    ],
)
def test_columns_are_found_by_what_they_are_called_in_the_files(
    tmp_path: Path, mode: str, rename: Callable[[str], str], ids: bool
) -> None:
    table = tmp_path / "t"
    add(table, 0, COLUMNS, ROWS, PROTOCOL, metadata(COLUMNS, mode), rename=rename, ids=ids)
    source = DeltaSource(str(table))
    assert read(source) == ROWS
    assert source.schema.names == ["i", "b c", "s", "p"]
    assert read(DeltaSource(str(table), split_bytes=1), find(source, column="i").splits) == ROWS
    assert read(DeltaSource(str(table), columns=["p", "b c"], filter=[("i", ">", 2)])) == [
        {"p": "one", "b c": "z"}
    ]


def test_the_rows_are_those_of_deltalake_or_a_command_says_why_not(tmp_path: Path, table: Path) -> None:
    """deltalake 1.6 reads files by their physical names, whatever the mode; one that has others is null to
    it."""
    assert read_table(str(table), {}).select(list(ROWS[0])).to_pylist() == ROWS
    by_id = tmp_path / "by id"
    add(by_id, 0, COLUMNS, ROWS, PROTOCOL, metadata(COLUMNS, "id"), rename=lambda name: f"zz {name}")
    with pytest.raises(ConfigError, match=r"column mapping \(id\).*DeltaSource reads it"):
        read_table(str(by_id), {})


@pytest.mark.parametrize(
    ("given", "files"),
    [
        pytest.param([("i", ">", 5)], 0, id="statistics"),
        pytest.param([("i", "=", 2)], 1, id="rows"),
        pytest.param([("p", "=", "two")], 0, id="partition"),
        pytest.param([("p", "=", "one")], 1, id="this partition"),
    ],
)
def test_files_are_ruled_out_by_the_log(table: Path, given: list[Any], files: int) -> None:
    source = DeltaSource(str(table), filter=given)
    assert len(find(source).splits) == files
    expected = [row for row in ROWS if row["i"] == 2] if given[0][0] == "i" else ROWS
    assert read(source) == (expected if files else [])


def test_event_times_are_those_of_the_log(table: Path) -> None:
    source = DeltaSource(str(table))
    assert [split.min_timestamp for split in find(source, column="i").splits] == [1]
    assert source.event_time_span("i") == (1, 3)


# --- a table that grows ---------------------------------------------------------------------------

RENAMED: list[Column] = [("n", 1, "c-1", pa.int64()), *COLUMNS[1:3], ("q", 5, "c-5", pa.string())]
AGAIN: list[Column] = [("i", 8, "c-8", pa.int64()), *COLUMNS[1:]]


def growing(table: Path, **options: Any) -> DeltaSource:
    return DeltaSource(str(table), bounded=False, **options)


def test_rows_that_are_added_are_found_by_the_names_of_the_files(table: Path) -> None:
    source = growing(table, columns=["p", "i"], filter=[("i", ">", 3)])
    found = find(source)
    add(table, 1, COLUMNS, [{**ROWS[0], "i": 4, "p": "two"}])
    add(table, 2, COLUMNS, [{**ROWS[0], "i": 2}])
    splits = find(source, after(found)).splits
    assert [part.version for part in parts(splits)] == [1]
    assert read(source, splits) == [{"p": "two", "i": 4}]


def test_a_column_that_was_renamed_goes_on_in_a_job_that_reads_it_and_has_its_older_rows_in_another(
    table: Path,
) -> None:
    source = growing(table, columns=["i", "p"])
    found = find(source)
    row = {"n": 4, "b c": None, "s": None}
    add(table, 1, RENAMED, [{**row, "q": "one"}], metadata(RENAMED, "name"))
    assert read(source, find(source, after(found)).splits) == [{"i": 4, "p": "one"}]
    assert values(growing(table), column="n") == [1, 2, 3, 4]
    old = growing(table, version=0, columns=["n", "q"])
    assert read(old) == [{"n": i, "q": "one"} for i in (1, 2, 3)]
    assert values(DeltaSource(str(table), version=0)) == [1, 2, 3]


def test_a_column_that_was_dropped_and_added_again_is_another_one(table: Path) -> None:
    source = growing(table, columns=["i"])
    found = find(source)
    add(table, 1, AGAIN, [{**ROWS[0], "i": 9}], metadata(AGAIN, "name"))
    with pytest.raises(ConfigError, match=rf"table {table}: column 'i' was dropped and added again"):
        find(source, after(found))
    by_new = read(growing(table, columns=["i"]))
    assert sorted(by_new, key=str) == [{"i": 9}] + [{"i": None}] * 3


def test_a_job_that_began_before_the_mapping_goes_on_with_it(tmp_path: Path) -> None:
    """Columns that are there get their own names as the physical ones."""
    table = tmp_path / "t"
    same: list[Column] = [("i", 1, "i", pa.int64())]
    plain = metadata(same, "none")
    plain["metaData"]["schemaString"] = json.dumps(
        {"type": "struct", "fields": [{"name": "i", "type": "long", "nullable": True, "metadata": {}}]}
    )
    add(table, 0, same, [{"i": 1}], {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, plain)
    source = growing(table)
    found = find(source)
    assert values(source, found.splits) == [1]
    add(table, 1, same, [{"i": 2}], PROTOCOL, metadata(same, "name"))
    found = find(source, after(found))
    assert values(source, found.splits) == [2]
    again: list[Column] = [("i", 2, "c-2", pa.int64())]
    add(table, 2, again, [{"i": 3}], metadata(again, "name"))
    with pytest.raises(ConfigError, match="column 'i' was dropped and added again since the job was built"):
        find(source, after(found))


def test_files_are_not_written_again(table: Path) -> None:
    """By a compaction, which would write other names."""
    lake = DeltaSinkTable.open(str(table), {})
    assert lake is not None
    with pytest.raises(ConfigError, match=r"uses column mapping \(name\).* not written again"):
        lake.small_files(1 << 20)


def test_a_log_without_ids_is_damaged() -> None:
    broken = metadata(COLUMNS, "name")["metaData"]
    text = broken["schemaString"].replace("physicalName", "other")
    given = Metadata(id="t", schema_string=text, configuration=broken["configuration"])
    with pytest.raises(ConfigError, match="column 'i' has no id or no physical name in the log"):
        facts_of("t", given)
    with pytest.raises(ConfigError, match=r"column mapping \(new\), which this source does not know"):
        facts_of("t", Metadata(id="t", schema_string=text, configuration={MODE: "new"}))

"""The Delta source by dimensions: type × how the table came to be × partitions × projection × filter.

The tables are written by deltalake, and the rows are those that were written, by plain Python.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake

from tests.pairwise import Row, every, pairwise
from tests.support.harness.source_driver import SourceDriver
from unistream.connector.catalogue import create_discovery
from unistream.connector.delta import DeltaSource
from unistream.port.projection import Selection
from unistream.port.source import Rows, Source

WITHIN_S: Final = 240.0


@dataclass(frozen=True)
class Kind:
    """`values`: one is null. `above`: some of them are, and some not; None: they have no order."""

    type: pa.DataType
    values: list[Any]
    above: Any = None


NESTED: Final = pa.struct([("l", pa.list_(pa.struct([("x", pa.int32())]))), ("t", pa.string())])
KINDS: Final = {
    "whole numbers": Kind(pa.int64(), [1, None, -(2**63), 2**63 - 1], 0),
    "decimals": Kind(
        pa.decimal128(38, 10), [Decimal("1.5"), None, Decimal(-(10**27)), Decimal(10**27)], Decimal(1)
    ),
    "numbers": Kind(pa.float64(), [1.5, None, float("-inf"), float("inf")], 0.0),
    "far days": Kind(
        pa.date32(), [dt.date(2020, 1, 1), None, dt.date(1, 1, 1), dt.date(9999, 12, 31)], dt.date(1970, 1, 1)
    ),
    "far times": Kind(
        pa.timestamp("us", "UTC"),
        [
            dt.datetime(2020, 1, 1, 0, 0, 0, 1, dt.UTC),
            None,
            dt.datetime(1, 1, 1, tzinfo=dt.UTC),
            dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, dt.UTC),
        ],
        dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
    ),
    "text": Kind(pa.string(), ["ü", None, "a b/c%=", "z" * 100], "b"),
    "a dictionary": Kind(pa.dictionary(pa.int32(), pa.string()), ["k", None, "a", "k"], "b"),
    "nested nulls": Kind(
        NESTED,
        [{"l": None, "t": None}, None, {"l": [], "t": ""}, {"l": [None, {"x": None}, {"x": 1}], "t": "u"}],
    ),
    "a map": Kind(pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", None)], None, [], [("c", 2)]]),
}
GROUPS: Final = ["a", "b", None, "a"]
DIMENSIONS: Final = {
    "kind": list(KINDS),
    "table": ["one commit", "two commits", "empty", "a column added later", "a checkpoint", "row groups"],
    "partitions": ["none", "of the group", "of the value"],
    "columns": ["all", "some", "used", "some of them used"],
    "filter": ["none", "of the group", "of the value", "of an operator"],
}


def is_possible(row: Row) -> bool:
    kind = KINDS[row["kind"]]
    if kind.above is None and (
        row["filter"] in ("of the value", "of an operator") or row["partitions"] == "of the value"
    ):
        return False
    if row["kind"] in ("numbers", "a dictionary") and row["partitions"] == "of the value":
        return False  # of numbers there are none; deltalake partitions by no dictionary
    return not (row["partitions"] == "of the value" and row["table"] == "a column added later")


def table_of(kind: Kind) -> pa.Table:
    return pa.table({"id": [0, 1, 2, 3], "group": GROUPS, "v": pa.array(kind.values, kind.type)})


def write(at: str, rows: pa.Table, table: str, partitions: str) -> pa.Table:
    """Returns what is in it afterwards."""
    by = {"none": None, "of the group": ["group"], "of the value": ["v"]}[partitions]
    if table == "empty":
        write_deltalake(at, rows.slice(0, 0), partition_by=by)
        return rows.slice(0, 0)
    if table in ("one commit", "a checkpoint"):
        write_deltalake(at, rows, partition_by=by)
    elif table == "row groups":
        of_one = WriterProperties(max_row_group_size=1)
        write_deltalake(at, rows, partition_by=by, writer_properties=of_one)
    elif table == "two commits":
        write_deltalake(at, rows.slice(0, 2), partition_by=by)
        write_deltalake(at, rows.slice(2), mode="append", partition_by=by)
    else:
        write_deltalake(at, rows.slice(0, 2).drop_columns(["v"]), partition_by=by)
        write_deltalake(at, rows.slice(2), mode="append", schema_mode="merge", partition_by=by)
        v = pa.array([None, None, *rows["v"].to_pylist()[2:]], rows["v"].type)
        rows = rows.set_column(2, "v", v)
    if table == "a checkpoint":
        DeltaTable(at).create_checkpoint()
    return rows


def read(source: Source) -> list[dict[str, Any]]:
    splits = create_discovery(source.info()).discover()
    with SourceDriver(source, splits, WITHIN_S) as driver:
        batches = [polled.records for polled in driver.polled() if isinstance(polled, Rows)]
    return pa.Table.from_batches(batches, source.schema).to_pylist()


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


def check(row: Row, folder: Path) -> None:
    kind = KINDS[row["kind"]]
    at = str(folder / "table")
    rows = write(at, table_of(kind), row["table"], row["partitions"]).to_pylist()
    columns = ["v", "id"] if "some" in row["columns"] else ["id", "group", "v"]
    used = {"used": {"v"}, "some of them used": {"id"}}.get(row["columns"])
    given = {"of the group": [("group", "=", "a")], "of the value": [("v", ">", kind.above)]}.get(
        row["filter"]
    )
    chosen = columns if "some" in row["columns"] else None
    split_bytes = 1 if row["table"] == "row groups" else 1 << 20
    source = DeltaSource(at, columns=chosen, filter=given, split_bytes=split_bytes)
    kept = [one for one in rows if _is_kept(one, row["filter"], kind)]
    if used is not None:
        source = source.reading(frozenset(used))
        columns = [name for name in columns if name in used]
    if row["filter"] == "of an operator":
        above = pa.scalar(kind.above, _value_type(kind.type))
        source = source.reading_rows(Selection(pc.field("v") > above, ("v",)))
    found = in_order(read(source))
    of_columns = [{name: one[name] for name in columns} for one in kept]
    if row["filter"] != "of an operator":
        assert found == in_order(of_columns)
        return
    everything = in_order([{name: one[name] for name in columns} for one in rows])
    assert not _left_out(in_order(of_columns), found), "a row that the operator wants"
    assert not _left_out(found, everything), "a row that is not there"


def _is_kept(row: dict[str, Any], which: str, kind: Kind) -> bool:
    if which == "of the group":
        return row["group"] == "a"
    if which == "none":
        return True
    return row["v"] is not None and row["v"] > kind.above


def _left_out(wanted: list[str], found: list[str]) -> list[str]:
    left = list(found)
    return [one for one in wanted if one not in left or left.remove(one)]  # type: ignore[func-returns-value]


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


PAIRS: Final = pairwise(DIMENSIONS, is_possible)


@pytest.mark.parametrize("row", PAIRS, ids=lambda row: "-".join(row.values()))
def test_a_table_has_the_rows_that_were_written(tmp_path: Path, row: Row) -> None:
    check(row, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_has_the_rows_that_were_written_in_every_combination(tmp_path: Path, kind: str) -> None:
    for number, row in enumerate(every({**DIMENSIONS, "kind": [kind]}, is_possible)):
        (tmp_path / str(number)).mkdir()
        check(row, tmp_path / str(number))

"""Every kind of partition value of an Iceberg table, by every way in which rows get into it, read back by
pyiceberg and by iceberg-rust, which have no code in common."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo, IsNull

import unistream as us
from tests.contract.sink_runs import SinkRun
from tests.contract.test_contract_delta_partitions import VALUES, rows
from tests.iceberg_lake import TABLE, Lake
from unistream.base.ids import LineageId

WAYS: dict[str, dict[str, Any]] = {"append": {}, "overwrite": {"mode": "overwrite-partitions"}}
OF_ICEBERG = {
    **VALUES,
    "text": pa.array([*VALUES["text"].to_pylist(), "", "__HIVE_DEFAULT_PARTITION__"]),
    "bytes": pa.array([b"", b"\xff\x00/", None]),
    "time of day": pa.array([dt.time(0), dt.time(23, 59, 59, 999_999), None], pa.time64("us")),
}
CASES = [
    pytest.param(kind, way, is_new, id=f"{kind}, {way}, {'new' if is_new else 'with rows'}")
    for k, kind in enumerate(OF_ICEBERG)
    for w, way in enumerate(WAYS)
    for is_new in [(k + w) % 2 == 0]
]
"""Each pair of them once."""


def as_set(found: Iterable[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    listed = list(found)
    assert len({one[0] for one in listed}) == len(listed), "each row once"
    return set(listed)


def values_of(batch: pa.RecordBatch) -> set[tuple[Any, ...]]:
    return as_set((one["id"], one["p"], one["n"]) for one in batch.to_pylist())


def is_known_to_rust(kind: str) -> bool:
    """DataFusion hands out no Python times before the year 1678, nor bytes and wide decimals as they are."""
    return kind in ("text", "boolean", "8 bits", "64 bits", "decimal")


@pytest.mark.parametrize(("kind", "way", "is_new"), CASES)
def test_what_is_written_to_a_partition_is_read_from_it(
    tmp_path: Path, kind: str, way: str, is_new: bool
) -> None:
    lake, values = Lake(tmp_path), OF_ICEBERG[kind]
    expected = set[tuple[Any, ...]]()

    def write(lineage: str, options: dict[str, Any], *batches: pa.RecordBatch) -> None:
        sink = us.IcebergSink(
            TABLE, catalog_properties=lake.properties, partition_by=["p"], on_foreign="append", **options
        )
        sink.check(batches[0].schema)
        with SinkRun(sink, lineage=LineageId(lineage), checkpointing=not options) as run:
            for checkpoint, batch in enumerate(batches, 1):
                run.commit(checkpoint, batch)

    if not is_new:
        old = rows(values, first=1_000)
        write("older", {}, old)
        expected = values_of(old) if way == "append" else set()
    given = [rows(values, first=0), rows(values, first=100, n=1)][: 1 if way == "overwrite" else 2]
    write("lineage-1", WAYS[way], *given)
    for batch in given:
        expected |= values_of(batch)
    with lake.table() as table:
        found = table.scan().to_arrow().to_pylist()
        assert as_set((one["id"], one["p"], one["n"]) for one in found) == expected
        for value in values.to_pylist():
            assert _ids(table, value) == {one[0] for one in expected if one[1] == value}
    if is_known_to_rust(kind):
        assert as_set(lake.rows("SELECT id, p, n FROM t")) == expected


def _ids(table: Any, value: Any) -> set[int]:
    """Of the rows in one partition, found by the metadata of the table."""
    condition = IsNull("p") if value is None else EqualTo("p", value)
    return set(table.scan(row_filter=condition).to_arrow()["id"].to_pylist())

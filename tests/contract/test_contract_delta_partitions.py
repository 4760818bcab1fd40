"""Every kind of partition value that a Delta table has, by every way in which rows get into it, read back by
three readers: pyarrow, the query engine of deltalake, and the source of this project."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.contract.sink_runs import SinkRun
from tests.unit.connector.delta.delta_tables import read
from unistream.base.errors import ConfigError
from unistream.base.ids import LineageId
from unistream.connector.common import StageFiles
from unistream.connector.delta import DeltaSink, DeltaSource, read_table
from unistream.connector.delta.compaction import Compactor

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - of columns with and without a zone
TIMES = [EPOCH, EPOCH - dt.timedelta(microseconds=1), EPOCH.replace(year=1), EPOCH.replace(year=9999), None]
VALUES: dict[str, pa.Array] = {
    "text": pa.array(
        ["a b", "a/b=c", "a%20b", "ä€😀", "a:b", "x\ny", "..", "null", "a'b\"c", "\\*", "._hidden", " ",
         "[x],~+", "l" * 200, None]
    ),
    "text that names null": pa.array(["__HIVE_DEFAULT_PARTITION__", None, "a"]),
    "boolean": pa.array([True, False, None]),
    "8 bits": pa.array([-128, 0, 127, None], pa.int8()),
    "64 bits": pa.array([-(2**63), 0, 2**63 - 1, None], pa.int64()),
    "date": pa.array([dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31), None]),
    "time": pa.array(TIMES, pa.timestamp("us")),
    "time with a zone": pa.array(TIMES, pa.timestamp("us", "UTC")),
    "decimal": pa.array(
        [Decimal("-1.50"), Decimal("-0.05"), Decimal("0.00"), Decimal("2.00"), Decimal("9999.99"), None],
        pa.decimal128(6, 2),
    ),
    "wide decimal": pa.array([Decimal(f"-{'9' * 36}.99"), Decimal("0.01"), None], pa.decimal128(38, 2)),
}  # fmt: skip
WAYS: dict[str, dict[str, Any]] = {
    "append": {},
    "upsert": {"mode": "upsert", "key": "id"},
    "overwrite": {"mode": "overwrite-partitions"},
    "compaction": {},
}


def rows(values: pa.Array, *, first: int, n: int = 0) -> pa.RecordBatch:
    """One for each value."""
    ids = pa.array(range(first, first + len(values)), pa.int64())
    return pa.record_batch({"id": ids, "p": values, "n": pa.array([n] * len(values), pa.int64())})


def as_set(found: Sequence[dict[str, Any]]) -> set[tuple[Any, ...]]:
    assert len({one["id"] for one in found}) == len(found), "each row once"
    return {(one["id"], one["p"], one["n"]) for one in found}


def written(way: str, table: Path, batches: Sequence[pa.RecordBatch], lineage: str = "lineage-1") -> None:
    sink = DeltaSink(str(table), partition_by=["p"], on_foreign="append", **WAYS[way])
    sink.check(batches[0].schema)
    with SinkRun(sink, lineage=LineageId(lineage), checkpointing=way != "overwrite") as run:
        for checkpoint, batch in enumerate(batches, 1):
            run.commit(checkpoint, batch)
    if way == "compaction":
        compactor = Compactor(str(table), {}, StageFiles(str(table), {}, "the table"), 2)
        compactor.committed(2)
        compactor.wait()
        found = pa.table(DeltaTable(str(table)).get_add_actions(flatten=True)).column("partition.p")
        assert len(found) == len(batches[0]), "each partition is one file"


def is_refused(kind: str, way: str) -> bool:
    return way in ("upsert", "overwrite") and ("decimal" in kind or "names null" in kind)


CASES = [
    pytest.param(kind, way, is_new, id=f"{kind}, {way}, {'new' if is_new else 'with rows'}")
    for k, kind in enumerate(VALUES)
    for w, way in enumerate(WAYS)
    if not is_refused(kind, way)
    for is_new in [(k + w) % 2 == 0]
]
"""Each pair of them once."""


@pytest.mark.parametrize(("kind", "way", "is_new"), CASES)
def test_what_is_written_to_a_partition_is_read_from_it(
    tmp_path: Path, kind: str, way: str, is_new: bool
) -> None:
    values, table = VALUES[kind], tmp_path / "table"
    expected = set()
    if not is_new:
        old = rows(values, first=1_000)
        if is_refused(kind, "overwrite"):  # by deltalake as well
            written("append", table, [old], "older")
        else:
            write_deltalake(str(table), pa.table(old), partition_by=["p"])
        expected |= set() if way == "overwrite" else as_set(old.to_pylist())
    first, second = rows(values, first=0), rows(values, first=0, n=1)
    if way != "upsert":
        second = rows(values, first=100, n=1)
    given = [first] if way == "overwrite" else [first, second]
    written(way, table, given)
    for batch in given[1:] if way == "upsert" else given:
        expected |= as_set(batch.to_pylist())
    if "decimal" not in kind:  # pyarrow's data set is given negative ones as deltalake writes them
        assert as_set(DeltaTable(str(table)).to_pyarrow_table().to_pylist()) == expected
    assert as_set(read_table(str(table), {}).to_pylist()) == expected
    assert as_set(read(DeltaSource(str(table)))) == expected


@pytest.mark.parametrize("way", ["upsert", "overwrite"])
@pytest.mark.parametrize("kind", [one for one in VALUES if "decimal" in one])
def test_decimals_that_deltalake_would_write_wrongly_are_refused(tmp_path: Path, kind: str, way: str) -> None:
    with pytest.raises(ConfigError, match=r"partitions by column 'p', which is decimal128\(\d+, 2\)"):
        written(way, tmp_path / "table", [rows(VALUES[kind], first=0)])
    assert not (tmp_path / "table").exists()

"""Columns that a sink adds to its table, in the order of the runtime: the committer is there before the
rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

from tests.contract.sinks.run import SinkRun
from tests.iceberg_lake import Lake
from tests.unit.connector.iceberg.parts import Parts

HELD = pa.schema([("id", pa.int64())])


def batch(*ids: int, more: str = "n") -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(ids, pa.int64()), more: pa.array(ids, pa.int64())})


def rows(lake: Lake) -> list[dict[str, Any]]:
    with lake.table() as table:
        found: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


@pytest.mark.parametrize("writers", [1, 2])
def test_a_committer_that_is_there_before_the_columns_knows_them(
    lake: Lake, parts: Parts, writers: int
) -> None:
    lake.create(HELD)
    sink = parts.sink(schema_evolution="add")
    with SinkRun(sink, writers=writers) as run:
        run.commit(1, batch(1), batch(2))
        run.commit(2, batch(3), batch(4))
    assert rows(lake) == [{"id": id_, "n": id_} for id_ in (1, 2, 3, 4)]
    with lake.table() as table:
        assert table.metadata.current_snapshot().schema_id == table.schema().schema_id


def test_columns_that_come_between_two_commits(lake: Lake, parts: Parts) -> None:
    """The upgraded job has a column more; its committer has looked, and committed, before."""
    lake.create(HELD)
    with SinkRun(parts.sink(schema_evolution="add")) as run:
        run.commit(1, batch(1))
        staged = run.staged(2, batch(2))
        with lake.table() as table, table.update_schema() as update:  # of somebody else
            update.add_column("theirs", StringType())
        run.commit_staged(2, staged)
    with SinkRun(parts.sink(schema_evolution="add"), restored=2) as run:
        run.commit(3, batch(3, more="later"))
    assert rows(lake) == [
        {"id": 1, "n": 1, "theirs": None, "later": None},
        {"id": 2, "n": 2, "theirs": None, "later": None},
        {"id": 3, "n": None, "theirs": None, "later": 3},
    ]

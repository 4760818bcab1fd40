"""A Delta table that somebody puts back to an earlier version while a sink commits to it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.contract.sinks.run import SinkRun
from unistream.base.crash_points import passing
from unistream.connector.delta import DeltaSink

WAYS: dict[str, tuple[dict[str, Any], str, dict[int, int]]] = {
    "append": ({}, "delta.before_append", {0: 0, 1: 0, 100: 1}),
    "upsert": ({"mode": "upsert", "key": "id"}, "delta.before_append", {0: 1, 1: 0, 100: 1}),
    "overwrite": ({"mode": "overwrite-partitions"}, "delta.before_append", {0: 1, 100: 1}),
    "compact": ({"auto_compact_files": 2}, "compaction.written", {0: 0, 1: 0}),
}
"""Options, the moment, and id -> n afterwards."""


def rows(n: int, *ids: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "n": pa.array([n] * len(ids), pa.int64())})


@pytest.mark.parametrize("way", WAYS)
def test_what_was_put_back_between_look_and_commit_stays_so(tmp_path: Path, way: str) -> None:
    options, moment, expected = WAYS[way]
    table, left = tmp_path / "t", [moment]
    for number in range(4):
        write_deltalake(table, pa.table(rows(0, number)), mode="append")

    def restore(point: str) -> None:
        if point in left:
            left.remove(point)
            DeltaTable(table).restore(1)

    sink = DeltaSink(str(table), on_foreign="append", **options)
    with passing(restore), SinkRun(sink, checkpointing=way != "overwrite") as run:
        run.commit(1, rows(1, *([0] if way in ("upsert", "overwrite") else []), 100))
        for thread in threading.enumerate():
            if thread.name == "delta-compaction":
                thread.join()
    assert not left
    found = DeltaTable(table).to_pyarrow_table().to_pylist()
    assert {one["id"]: one["n"] for one in found} == expected
    assert len(found) == len(expected), "each row once"

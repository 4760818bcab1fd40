"""A pipeline on RocksDB whose table shows every row that was lost or doubled, and all state that was.

    rows ── by key ── counted (a number and a list of ids for each key) ── Delta table

A row says how many of its key were seen and how many ids are kept; `assert_exact` compares.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

import unistream as us
from tests.integration.crash_runs import submit
from tests.modes import STREAMING
from unistream.client.embedded.embedded_cluster import EmbeddedCluster, EmbeddedJobClient

CONFIG = {"execution.checkpointing.incremental": "true", "state.backend.type": "rocksdb"}


class Counted(us.KeyedProcessFunction):
    seen = us.ValueStateDescriptor("seen", pa.int64())
    ids = us.ListStateDescriptor("ids", pa.int64())

    def process_element(self, row: Any, context: us.ProcessContext, out: us.Collector) -> None:
        seen = context.state(self.seen)
        seen.update((seen.value() or 0) + 1)
        context.state(self.ids).add(row["id"])
        kept = context.state(self.ids).get()
        out.emit({"id": row["id"], "key": row["key"], "seen": seen.value(), "kept": len(kept)})


def counted(
    table: Path, *, rows: int, keys: int, rate: float, parallelism: int = 2, splits: int = 2
) -> us.Environment:
    """`rows` rows of `keys` keys, `rate` in a second, into `table`."""
    env = us.Environment({**STREAMING, "parallelism.default": str(parallelism)})
    columns: dict[str, Any] = {"id": us.datagen.Sequential(), "key": us.datagen.RandomInt(0, keys)}
    source = us.DatagenSource(columns, rows=rows, rows_per_second=rate, seed=3, splits=splits)
    read = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    returns = {"id": pa.int64(), "key": pa.int64(), "seen": pa.int64(), "kept": pa.int64()}
    found = read.key_by("key").process(Counted(), returns=returns).uid("counted")
    found.sink_to(us.DeltaSink(str(table))).uid("table")
    return env


def start(
    cluster: EmbeddedCluster, env: us.Environment, config: Mapping[str, str], savepoint: str | None = None
) -> EmbeddedJobClient:
    """`env` of `counted`, with `CONFIG` and what `config` adds or changes."""
    return submit(cluster, env, CONFIG | dict(config), savepoint, by_value=[sys.modules[__name__]])


def assert_exact(table: Path, rows: int) -> None:
    """Every row once, and every row of a key met the state that those before it had left."""
    found = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    assert sorted(row["id"] for row in found) == list(range(rows))
    by_key: dict[int, list[int]] = {}
    for row in found:
        assert row["kept"] == row["seen"]
        by_key.setdefault(row["key"], []).append(row["seen"])
    assert all(sorted(seen) == list(range(1, len(seen) + 1)) for seen in by_key.values())

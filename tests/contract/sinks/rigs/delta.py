"""A Delta table, as deltalake and its query engine see and change it; and the source of this project, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, Schema, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from tests.contract.sinks.rig import (
    BETWEEN,
    NEW,
    NOBODY,
    UNTOLD,
    Combination,
    Foreign,
    Way,
    appended,
    deleted,
    overwritten,
    updated,
)
from tests.contract.sinks.values import KINDS
from tests.unit.connector.delta.delta_tables import read
from unistream.connector.delta import DeltaSink, DeltaSource
from unistream.port.sink import Sink


def _merge(table: DeltaTable, victim: int) -> Any:
    rows = pa.table({"id": pa.array([victim], pa.int64())})
    merging = table.merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
    return merging.when_matched_update({"n": "8"}).execute()


def _add_column(table: DeltaTable) -> None:
    table.alter.add_columns(Schema.from_arrow(pa.schema([("more", pa.int64())])).fields)


def _doing(act: Any) -> Any:
    """Given the table, the id of a row and one row."""

    def begin(rig: DeltaRig, victim: int, theirs: pa.RecordBatch) -> Any:
        table = DeltaTable(rig.uri)
        return lambda: act(table, victim, plain(theirs))

    return begin


def plain(rows: pa.RecordBatch) -> pa.Table:
    kinds = [k.value_type if pa.types.is_dictionary(k) else k for k in rows.schema.types]
    return pa.table(rows).cast(pa.schema(list(zip(rows.schema.names, kinds, strict=True))))


FOREIGN = {
    "append": Foreign(
        _doing(lambda table, _, theirs: write_deltalake(table, theirs, mode="append")), appended
    ),
    "delete": Foreign(_doing(lambda table, victim, _: table.delete(f"id = {victim}")), deleted),
    "merge": Foreign(_doing(lambda table, victim, _: _merge(table, victim)), updated),
    "optimize": Foreign(_doing(lambda table, *_: table.optimize.compact())),
    "z-order": Foreign(_doing(lambda table, *_: table.optimize.z_order(["id"]))),
    "overwrite": Foreign(
        _doing(lambda table, _, theirs: write_deltalake(table, theirs, mode="overwrite")), overwritten
    ),
    "new column": Foreign(_doing(lambda table, *_: _add_column(table))),
    "vacuum": Foreign(_doing(lambda table, *_: table.vacuum(dry_run=False))),
    "checkpoint": Foreign(_doing(lambda table, *_: table.create_checkpoint())),
    "properties": Foreign(
        _doing(lambda table, *_: table.alter.set_table_properties({"delta.checkpointInterval": "50"}))
    ),
}
WRITING = ("append", "overwrite", "delete", "merge", "optimize", "z-order")
OURS_ONLY = ("names", "decimal", "wide decimal")
"""Partition values that deltalake itself writes wrongly."""


WAYS = {
    "append": Way("append", "column"),
    "append to partitions": Way("append", "partition", {"partition_by": ["v"]}),
    "upsert": Way("upsert", "partition", {"mode": "upsert", "key": "id", "partition_by": ["v"]}),
    "upsert by value": Way("upsert", "key", {"mode": "upsert", "key": "v"}),
    "overwrite": Way("overwrite", "column", {"mode": "overwrite-partitions"}),
    "overwrite partitions": Way(
        "overwrite", "partition", {"mode": "overwrite-partitions", "partition_by": ["v"]}
    ),
    "compact": Way(
        *("append", "partition", {"auto_compact_files": 2, "partition_by": ["v"]}),
        *(("compaction.begins", "compaction.written", "compaction.done"), "compaction.written"),
    ),
}
REWRITTEN = ("upsert", "overwrite partitions")
PARTITIONED = [name for name, one in WAYS.items() if one.place == "partition"]


class DeltaRig:
    kinds = tuple(KINDS)
    ways = WAYS
    refused = (
        *((kind, way) for kind in ("decimal", "wide decimal") for way in REWRITTEN),
        *((kind, way) for kind in ("bytes", "list", "double") for way in PARTITIONED),
        *((kind, "upsert by value") for kind in ("bytes", "list", "double")),
    )
    staging = ("delta.staged",)
    steps = ("delta.before_append", "delta.appended")
    look = "delta.before_append"
    foreign = FOREIGN
    refusals = (CommitFailedError, DeltaError)
    background = "delta-compaction"

    @staticmethod
    def is_possible(one: Combination) -> bool:
        # of the others none compacts behind its death, or it gives up because of what was done
        compacts = one.killed in (NOBODY, UNTOLD, *DeltaRig.staging, "compaction.written")
        if one.way == "compact" and one.when == BETWEEN and not compacts:
            return False
        if one.kind == "names" and one.way in REWRITTEN:
            return False  # such a value is refused when it comes
        is_theirs = one.kind not in OURS_ONLY or WAYS[one.way].place != "partition"
        return is_theirs or (one.table == NEW and one.foreign not in WRITING)

    def __init__(self, folder: Path, _fixture: Callable[[str], Any]) -> None:
        self.uri = str(folder / "table")

    def is_empty(self) -> bool:
        return not Path(self.uri).exists()

    def sink(self, way: Way) -> Sink:
        return DeltaSink(self.uri, on_foreign="append", **way.options)

    def fill(self, way: Way, rows: pa.RecordBatch) -> None:
        write_deltalake(self.uri, plain(rows), partition_by=way.options.get("partition_by"))

    def shown(self, value: Any, way: Way) -> Any:
        return value

    def readers(self, way: Way, schema: pa.Schema) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        table = DeltaTable(self.uri)
        if way.place != "partition" or not pa.types.is_decimal(schema.field("v").type):
            yield "pyarrow", table.to_pyarrow_table().to_pylist()  # it takes negative ones for other values
        found = QueryBuilder().register("t", table).execute("SELECT id, v, n FROM t").read_all()
        yield "DataFusion", pa.table(found).to_pylist()
        if way.place == "partition":
            yield "DeltaSource", read(DeltaSource(self.uri))

"""An Iceberg table, as pyiceberg sees and changes it, and as iceberg-rust reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.types import LongType

from tests.contract.sinks.rig import Combination, Foreign, Way, appended, deleted, overwritten, updated
from tests.contract.sinks.rigs.delta import plain
from tests.contract.sinks.values import KINDS
from tests.iceberg_lake import TABLE, Lake
from unistream.connector.iceberg import IcebergSink
from unistream.connector.iceberg.catalog import checked_address
from unistream.connector.iceberg.partition import reads_doubles
from unistream.connector.iceberg.source_rows import read_rows
from unistream.port.sink import Sink


def _doing(act: Any) -> Any:
    """Given the table, the id of a row and one row."""

    def begin(rig: IcebergRig, victim: int, theirs: pa.RecordBatch) -> Any:
        opened = rig.lake.table()
        table = opened.__enter__()

        def end() -> None:
            try:
                act(table, victim, plain(theirs))
            finally:
                opened.__exit__(None, None, None)

        return end

    return begin


def _update(table: Any, victim: int, _theirs: pa.Table) -> None:
    rows = table.scan(row_filter=f"id = {victim}").to_arrow()
    n = rows.schema.get_field_index("n")
    table.upsert(rows.set_column(n, rows.schema.field(n), pa.array([8] * len(rows), pa.int64())), ["id"])


def _add_column(table: Any, *_: Any) -> None:
    with table.update_schema() as update:
        update.add_column("theirs", LongType())


def _expire(table: Any, *_: Any) -> None:
    older = [one for one in table.snapshots() if one.snapshot_id != table.current_snapshot().snapshot_id]
    for one in older[:1]:
        table.maintenance.expire_snapshots().by_id(one.snapshot_id).commit()


def _set_property(table: Any, *_: Any) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"owner": "somebody"})


def _tag(table: Any, *_: Any) -> None:
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "t").commit()


FOREIGN = {
    "append": Foreign(_doing(lambda table, _, theirs: table.append(theirs)), appended),
    "delete": Foreign(_doing(lambda table, victim, _: table.delete(f"id = {victim}")), deleted),
    "overwrite": Foreign(_doing(lambda table, _, theirs: table.overwrite(theirs)), overwritten),
    "upsert": Foreign(_doing(_update), updated),
    "new column": Foreign(_doing(_add_column)),
    "expire": Foreign(_doing(_expire)),
    "properties": Foreign(_doing(_set_property)),
    "tag": Foreign(_doing(_tag)),
}
WAYS = {
    "append": Way("append", "column"),
    "append to partitions": Way("append", "partition", {"partition_by": ["v"]}),
    "upsert": Way(
        "upsert", "partition", {"mode": "upsert", "key": "id", "partition_by": ["v"]}, ("iceberg.rewritten",)
    ),
    "upsert by value": Way("upsert", "key", {"mode": "upsert", "key": "v"}, ("iceberg.rewritten",)),
    "overwrite": Way("overwrite", "column", {"mode": "overwrite-partitions"}),
    "overwrite partitions": Way(
        "overwrite", "partition", {"mode": "overwrite-partitions", "partition_by": ["v"]}
    ),
}
NOT_BY_RUST = ("date", "time", "time with a zone", "bytes", "wide decimal", "list")
"""DataFusion hands out no Python times before the year 1678, nor these as they are."""

LIKE_OTHERS = ("names", "dictionary", "8 bits")
"""A commit of Iceberg costs ten times one of Delta, and these have nothing of their own there."""


class IcebergRig:
    kinds = tuple(kind for kind in KINDS if kind not in LIKE_OTHERS)
    ways = WAYS
    refused = (
        *(
            (kind, way)
            for kind in ("list", *(() if reads_doubles() else ("double",)))
            for way in ("append to partitions", "upsert", "overwrite partitions")
        ),
        *((kind, "upsert by value") for kind in ("list", "double")),
    )
    staging = ("iceberg.staged",)
    steps = ("iceberg.before_commit", "iceberg.manifests_written", "iceberg.committed")
    look = "iceberg.manifests_written"
    foreign = FOREIGN
    refusals = (CommitFailedException, ValidationException)
    background = ""

    @staticmethod
    def is_possible(_one: Combination) -> bool:
        return True

    def __init__(self, folder: Path, _fixture: Callable[[str], Any]) -> None:
        self.lake = Lake(folder)

    def is_empty(self) -> bool:
        return not self.lake.warehouse.exists()

    def sink(self, way: Way) -> Sink:
        return IcebergSink(TABLE, catalog_properties=self.lake.properties, on_foreign="append", **way.options)

    def fill(self, way: Way, rows: pa.RecordBatch) -> None:
        self.lake.create(plain(rows).schema)
        if way.place == "partition":

            def partition(table: Any) -> None:
                with table.update_spec() as update:
                    update.add_identity("v")

            self.lake.change(partition)
        self.lake.change(lambda table: table.append(plain(rows)))

    def shown(self, value: Any, way: Way) -> Any:
        return value

    def readers(self, way: Way, schema: pa.Schema) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        with self.lake.table() as table:
            yield "pyiceberg", table.scan().to_arrow().to_pylist()
        kinds = {KINDS[one].type for one in NOT_BY_RUST}
        if schema.field("v").type not in kinds:
            found = self.lake.rows("SELECT id, v, n FROM t")
            yield "iceberg-rust", [dict(zip(("id", "v", "n"), one, strict=True)) for one in found]
        if way.rule == "upsert":
            address = checked_address("default", TABLE, self.lake.properties)
            yield "IcebergSource", read_rows(address).to_pylist()

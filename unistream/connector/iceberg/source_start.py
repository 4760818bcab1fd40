"""Where an Iceberg source begins: the options that master and client share, and the snapshots that they
mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.connector.common import RowFilter, checked_filter, read_schema
from unistream.connector.iceberg.catalog import TableAddress
from unistream.connector.iceberg.source_log import History, SnapshotFacts, current_at
from unistream.connector.iceberg.source_schema import TableColumns
from unistream.connector.iceberg.source_table import IcebergSourceTable


class IcebergStart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times are in ms since 1970; see `IcebergSource`."""

    bounded: bool
    ref: str
    snapshot_id: int | None = None
    timestamp_ms: int | None = None
    after_snapshot: int | None = None
    starting_snapshot: int | Literal["latest", "earliest"] | None = None
    starting_timestamp_ms: int | None = None


class IcebergSourceOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the master needs to find the splits. `schema`: of the columns that are read, those of the filter
    too, with their ids (`columns_by_id`), as Arrow IPC in base64. `filter`: as `plain_filter` gives it."""

    address: TableAddress
    start: IcebergStart
    schema: str
    filter: list[list[tuple[str, str, Any]]]
    ignore_deletes: bool
    ignore_changes: bool
    split_bytes: int

    def read_schema(self) -> pa.Schema:
        return read_schema(self.schema, "an Iceberg source")

    def row_filter(self) -> RowFilter:
        return checked_filter(self.filter, self.read_schema(), f"table {self.address.text}")


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergStartSnapshots:
    """Where a source begins.

    Attributes:
        snapshot: Whose rows are read first; None: there are none, or only what later ones add.
        position: The last snapshot that needs not be read any more; None: none was.
        until: Bounded: the last snapshot whose added rows are read.
    """

    snapshot: SnapshotFacts | None
    position: int | None
    until: SnapshotFacts | None = None


def find_columns(table: IcebergSourceTable, start: IcebergStart) -> TableColumns:
    """The columns of the newest schema; of an older snapshot, or a tag, those that it was written with.
    Raises ConfigError: there is no such snapshot."""
    if not start.bounded or (start.snapshot_id is None and start.timestamp_ms is None):
        is_tag = start.bounded and table.is_tag(start.ref)
        return table.columns(_read_one(table, start) if is_tag else None)
    return table.columns(_read_one(table, start))


def find_begin(table: IcebergSourceTable, start: IcebergStart) -> IcebergStartSnapshots:
    """Raises ConfigError: no such snapshot, time, branch or tag."""
    history = table.history(start.ref)
    if not start.bounded and table.is_tag(start.ref):
        raise ConfigError(
            f"{history.where}: {start.ref!r} is a tag, which gets no new rows; follow a branch, or read the "
            "tag with bounded=True"
        )
    match start:
        case IcebergStart(starting_snapshot="latest"):
            return IcebergStartSnapshots(snapshot=None, position=history.head)
        case IcebergStart(starting_snapshot="earliest"):
            return IcebergStartSnapshots(snapshot=None, position=None)
        case IcebergStart(starting_snapshot=int(snapshot_id)):
            return IcebergStartSnapshots(snapshot=None, position=history.before(snapshot_id))
        case IcebergStart(starting_timestamp_ms=int(at_ms)):
            return IcebergStartSnapshots(snapshot=None, position=history.since(at_ms))
        case IcebergStart(bounded=False, after_snapshot=int(snapshot_id)):
            return IcebergStartSnapshots(snapshot=None, position=snapshot_id)
    snapshot = _read_one(table, start)
    if start.after_snapshot is not None:
        return IcebergStartSnapshots(snapshot=None, position=start.after_snapshot, until=snapshot)
    return IcebergStartSnapshots(snapshot=snapshot, position=None if snapshot is None else snapshot.id)


def _read_one(table: IcebergSourceTable, start: IcebergStart) -> SnapshotFacts | None:
    """The snapshot that is read; None: the table has none yet."""
    history: History = table.history(start.ref)
    if start.snapshot_id is not None:
        return history.at(start.snapshot_id)
    if start.timestamp_ms is not None:
        return history.at(current_at(history.where, table.log(), start.timestamp_ms))
    return None if history.head is None else history.at(history.head)

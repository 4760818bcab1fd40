"""Iceberg tables as a source: the rows of one snapshot, those added since another, or all that come later."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec
import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.base.extras import require
from unistream.base.limits import MIB
from unistream.base.secrets import Secret
from unistream.connector import common
from unistream.connector.common import At, Filter
from unistream.connector.iceberg.catalog import checked_address, lineage_of
from unistream.model.graph import SourceInfo
from unistream.model.lineage import LineageDataset
from unistream.model.time_range import TimeRange
from unistream.port.projection import Selection
from unistream.port.source import SourceReader, SplitDiscovery

if TYPE_CHECKING:
    from unistream.connector.iceberg.source_read import IcebergSpec

SPLIT_BYTES: Final = 32 * MIB  # as of a file source
DISCOVERY_INTERVAL_MS: Final = 60_000  # as Flink's Iceberg source (monitor-interval)
MAIN: Final = "main"
_WHO: Final = "Iceberg source"
_A_SOURCE: Final = "an Iceberg source"


class _TableSchemas(NamedTuple):
    """What the table has, with ids. `read`: the columns of the rows, and of the filter."""

    schema: pa.Schema
    read: pa.Schema
    keys: pa.Schema
    mapping: str | None


class IcebergSource:
    """Rows of an Iceberg table.

    Bounded (the default), it reads one snapshot: the newest when the job starts, or the one of `snapshot_id`,
    `timestamp` or `ref`; with `after_snapshot`, the rows that were added after that one up to it. All
    subtasks and restarts of a job read the same snapshot, whatever is written meanwhile. With
    ``bounded=False`` the rows that later snapshots add follow. The position is in every checkpoint.

    Args:
        table: ``namespace.name``.
        catalog: Name of the catalog, as of `IcebergSink`.
        catalog_properties: Of pyiceberg's catalogs, as of `IcebergSink`.
        columns: Only these, in this order; the others are not decoded. By default all that the table has when
            the program runs; of an older snapshot, all that this has. Columns are found by their ids: one
            that was renamed is read from older files, too. One that an older file does not have is its
            default value, or null.
        filter: Only these rows: ``[("day", ">=", "2026-01-01"), ("carrier", "in", ["AA", "UA"])]``; as of
            `DeltaSource`. Manifests, files and row groups whose partition (also by a transform) or statistics
            show that they have no such row are not read.
        snapshot_id: The snapshot to read.
        timestamp: The snapshot that was the table's newest one at this time: text in ISO-8601
            (``"2026-01-01T00:00:00Z"``) or a datetime; in UTC if it has no zone.
        ref: Branch or tag; an unbounded source follows a branch.
        after_snapshot: Only rows that were added after this snapshot: up to the one that is read, or,
            unbounded, from then on. It may have expired, the one after it not.
        bounded: False: the source never ends; new snapshots are looked for every `discovery_interval_ms`.
        starting_snapshot: Unbounded only: do not read a whole snapshot first, but what was added by this one
            and later ones; ``"earliest"``: by all; ``"latest"``: by those after the newest one. As for
            Kafka's starting offsets, a restored job continues at its position instead.
        starting_timestamp: Unbounded only: the same, from the first snapshot that was committed at this time
            or later.
        ignore_deletes: Pass snapshots that only delete rows instead of failing, where added rows are read.
        ignore_changes: The same for snapshots that rewrite rows (UPDATE, MERGE, DELETE, overwrite); all rows
            of their new files are read, also those that were read before. What is removed stays in the
            results. Includes `ignore_deletes`. Compaction (rewrite_data_files) changes no rows; it is always
            passed.
        discovery_interval_ms: How often to look for new snapshots, in milliseconds; 60,000 by default.
        split_bytes: Larger files are read by several subtasks, by row groups of at least this size together.

    Rows that were deleted, by position, by equality or by deletion vectors, are not read. Data files and
    files with deletes that are not Parquet are refused, and so are columns of type geometry, geography and
    unknown, and a table with a variant, which pyiceberg cannot open.

    Raises:
        ConfigError: an argument is wrong, or pyiceberg is not installed; at `schema` or when the job starts:
            no table, snapshot or column, or a filter that does not fit its column; while it runs: rows were
            changed or deleted, the table was replaced or set back, or a snapshot expired before it was read.

    >>> lake = {"uri": "sqlite:////tmp/catalog.db", "warehouse": "/tmp/lake"}
    >>> IcebergSource("air.flights", catalog_properties=lake, filter=[("delay", ">", 60)]).name
    'iceberg'
    """

    def __init__(
        self,
        table: str,
        *,
        catalog: str = "default",
        catalog_properties: Mapping[str, str | Secret] | None = None,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
        snapshot_id: int | None = None,
        timestamp: At | None = None,
        ref: str = MAIN,
        after_snapshot: int | None = None,
        bounded: bool = True,
        starting_snapshot: int | Literal["latest", "earliest"] | None = None,
        starting_timestamp: At | None = None,
        ignore_deletes: bool = False,
        ignore_changes: bool = False,
        discovery_interval_ms: int = DISCOVERY_INTERVAL_MS,
        split_bytes: int = SPLIT_BYTES,
    ) -> None:
        require("iceberg", "IcebergSource")
        self._address = checked_address(catalog, table, catalog_properties or {}, _WHO)
        self._columns = None if columns is None else common.checked_columns(_A_SOURCE, columns)
        self._groups = common.groups_of(filter, "IcebergSource")
        self._ignore = {"ignore_deletes": ignore_deletes, "ignore_changes": ignore_changes}
        given = {
            "ref": ref,
            "snapshot_id": snapshot_id,
            "timestamp": timestamp,
            "after_snapshot": after_snapshot,
            "starting_snapshot": starting_snapshot,
            "starting_timestamp": starting_timestamp,
        }
        _check_begin(bounded, given, self._ignore)
        self._begin = _stored_begin(bounded, given)
        if split_bytes < 1 or (discovery_interval_ms < 1 and not bounded):
            raise ConfigError(
                "split_bytes and discovery_interval_ms must be above 0, not "
                f"{split_bytes}, {discovery_interval_ms}"
            )
        self._interval_ms = 0 if bounded else discovery_interval_ms
        self._split_bytes = split_bytes
        self._selection: Selection | None = None
        self._found: _TableSchemas | None = None

    def __repr__(self) -> str:
        return (
            f"IcebergSource({self._address.table!r}, columns={self._columns}, filter={self._groups}, "
            f"{self._begin})"
        )

    @property
    def name(self) -> str:
        return "iceberg"

    @property
    def table(self) -> str:
        """The name of the table: ``namespace.name``."""
        return self._address.table

    @property
    def schema(self) -> pa.Schema:
        from unistream.connector.common.columns_by_id import plain_schema

        return plain_schema(self._in_table().schema)

    def lineage_datasets(self) -> list[LineageDataset]:
        """See `unistream.port.lineage`."""
        return [lineage_of(self._address)]

    def info(self) -> SourceInfo:
        from unistream.connector.iceberg.source_start import IcebergSourceOptions, IcebergStart

        options = IcebergSourceOptions(
            address=self._address,
            start=msgspec.convert(self._begin, IcebergStart),
            schema=common.written_schema(self._in_table().read),
            filter=common.plain_filter(self._row_filter()),
            split_bytes=self._split_bytes,
            **self._ignore,
        )
        return SourceInfo(
            connector="iceberg",
            options=msgspec.to_builtins(options),
            bounded=self._interval_ms == 0,
            pull=True,
            discovery_interval_ms=self._interval_ms,
        )

    def create_reader(self) -> SourceReader:
        from unistream.connector.iceberg.source_read import iceberg_reader

        return iceberg_reader(self.spec())

    def spec(self) -> IcebergSpec:
        """How its files are read."""
        from unistream.connector.iceberg.source_read import IcebergSpec

        found = self._in_table()
        return IcebergSpec(
            address=self._address,
            schema=found.schema,
            read=found.read,
            keys=found.keys,
            mapping=found.mapping,
            row_filter=self._row_filter(),
            selection=self._selection,
        )

    def event_time_span(self, column: str) -> tuple[int, int] | None:
        """The least and the greatest time in the statistics of the table's files; None: they do not say."""
        from unistream.connector.iceberg.source_span import time_span
        from unistream.connector.iceberg.source_start import IcebergStart

        if self._groups or self._begin["after_snapshot"] is not None:
            return None  # of all rows, not of those that are selected
        return time_span(self._address, msgspec.convert(self._begin, IcebergStart), column)

    def within(self, column: str, range_: TimeRange) -> IcebergSource:
        """A copy of the source with a filter for the range; the source itself if the column is no
        timestamp."""
        kind = self._in_table().read.field(column).type
        if not pa.types.is_timestamp(kind):
            return self
        inside = common.conditions_of_range(column, kind, range_)
        found = copy.copy(self)
        found._groups = [[*group, *inside] for group in self._groups or [[]]]
        found._found = None
        return found

    def reading(self, columns: frozenset[str]) -> IcebergSource:
        """See `unistream.port.projection`."""
        found = copy.copy(self)
        held = self._in_table()
        needed = columns | set(common.filter_columns(self._row_filter()))
        found._found = held._replace(
            schema=pa.schema([field for field in held.schema if field.name in columns]),
            read=pa.schema([field for field in held.read if field.name in needed]),
        )
        return found

    def reading_rows(self, selection: Selection) -> IcebergSource:
        """See `unistream.port.projection`: by the statistics of row groups."""
        found = copy.copy(self)
        found._selection = selection
        return found

    def _row_filter(self) -> common.RowFilter:
        return common.checked_filter(self._groups, self._in_table().read, f"table {self._address.text}")

    def _in_table(self) -> _TableSchemas:
        if self._found is None:
            from unistream.connector.iceberg.source_discovery import no_table
            from unistream.connector.iceberg.source_start import IcebergStart, find_begin, find_columns
            from unistream.connector.iceberg.source_table import IcebergSourceTable
            from unistream.connector.iceberg.table import IcebergSinkTable

            start = msgspec.convert(self._begin, IcebergStart)
            where = f"table {self._address.text}"
            with IcebergSinkTable.opened(self._address) as lake:
                loaded = lake.load()
                if loaded is None:
                    raise no_table(self._address.text)
                table = IcebergSourceTable(where, loaded)
                columns = find_columns(table, start)
                if start.bounded:
                    find_begin(table, start)
            schema = columns.selected(self._columns)
            row_filter = common.checked_filter(self._groups, columns.schema, where)
            others = [name for name in common.filter_columns(row_filter) if name not in schema.names]
            read = pa.schema([*schema, *columns.selected(others)])
            self._found = _TableSchemas(schema, read, table.keys, table.name_mapping)
        return self._found


def create_discovery(info: SourceInfo) -> SplitDiscovery:
    """Entry point of the connector registry.

    Raises:
        ConfigError: pyiceberg is not installed here, or the options are not those of an Iceberg source.
    """
    require("iceberg", "an Iceberg source")
    from unistream.connector.iceberg.source_discovery import IcebergDiscovery
    from unistream.connector.iceberg.source_start import IcebergSourceOptions

    return IcebergDiscovery(common.discovery_options(info, IcebergSourceOptions, "Iceberg"), info)


# --- arguments ------------------------------------------------------------------------------------


def _check_begin(bounded: bool, given: Mapping[str, object], ignores: Mapping[str, object]) -> None:
    """Raises ConfigError: the source would begin at several places, or needs to be unbounded."""
    starts = {name: given[name] for name in ("starting_snapshot", "starting_timestamp")}
    reads = {name: given[name] for name in ("snapshot_id", "timestamp")}
    common.check_one_begin(_A_SOURCE, reads | {"ref": None if given["ref"] == MAIN else given["ref"]})
    common.check_one_begin(_A_SOURCE, reads | starts)
    after = {"after_snapshot": given["after_snapshot"]}
    common.check_one_begin(_A_SOURCE, starts | after)
    common.check_unbounded("snapshots", bounded, starts)
    if after["after_snapshot"] is None:
        common.check_unbounded("snapshots", bounded, ignores)
    elif not bounded and any(value is not None for value in reads.values()):
        raise ConfigError(
            "an Iceberg source with bounded=False and after_snapshot reads what is added from then on, so "
            "there is no snapshot_id and no timestamp to end at"
        )


def _stored_begin(bounded: bool, given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `IcebergStart`. Raises ConfigError."""
    starting = given["starting_snapshot"]
    is_word = starting in ("latest", "earliest")
    return {
        "bounded": bounded,
        "ref": _checked_ref(given["ref"]),
        "snapshot_id": _checked_id("snapshot_id", given["snapshot_id"]),
        "timestamp_ms": common.time_ms("timestamp", given["timestamp"]),
        "after_snapshot": _checked_id("after_snapshot", given["after_snapshot"]),
        "starting_snapshot": starting if is_word else _checked_id("starting_snapshot", starting),
        "starting_timestamp_ms": common.time_ms("starting_timestamp", given["starting_timestamp"]),
    }


def _checked_id(name: str, given: Any) -> int | None:
    if given is None or type(given) is int:
        return given
    words = ', "latest" or "earliest"' if name == "starting_snapshot" else ""
    raise ConfigError(f"{name} must be the id of a snapshot{words}, not {given!r}")


def _checked_ref(ref: object) -> str:
    if not isinstance(ref, str) or not ref:
        raise ConfigError(f"ref must be the name of a branch or tag, not {ref!r}")
    return ref

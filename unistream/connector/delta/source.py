"""Delta Lake tables as a source: the rows of one version, or also those that are added later."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec
import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.base.extras import require
from unistream.base.limits import MIB
from unistream.base.object_stores import delta_options
from unistream.base.secrets import Secret, redacted, resolved_options
from unistream.connector import common
from unistream.connector.common import At, Filter
from unistream.connector.common.columns_by_id import plain_schema
from unistream.connector.delta.column_mapping import NONE
from unistream.connector.delta.source_read import DeltaSpec, delta_reader
from unistream.connector.delta.source_storage import table_files
from unistream.connector.delta.table_uri import checked_uri
from unistream.model.graph import SourceInfo
from unistream.model.lineage import LineageDataset, dataset_at
from unistream.model.time_range import TimeRange
from unistream.port.projection import Selection
from unistream.port.source import SourceReader, SplitDiscovery

SPLIT_BYTES: Final = 32 * MIB  # as of a file source
DISCOVERY_INTERVAL_MS: Final = 5_000  # of the Delta connector of Flink


class DeltaSource:
    """Rows of a Delta table.

    Bounded (the default), it reads one version: the newest when the job starts, or the one of `version` or
    `timestamp`. All subtasks and restarts of a job read the same version, whatever is written meanwhile.
    With ``bounded=False`` the rows that later versions add follow. The position is in every checkpoint.

    Args:
        table_uri: Local path or URL of the table's folder.
        columns: Only these, in this order; the others are not decoded. By default all that this version has;
            unbounded, all that the newest has when the program runs. A column that an older file does not
            have is null there.
        filter: Only these rows: ``[("day", ">=", "2026-01-01"), ("carrier", "in", ["AA", "UA"])]`` (all
            conditions), or a list of such lists (all conditions of any of them). Operators: ``=``, ``!=``,
            ``<``, ``<=``, ``>``, ``>=``, ``in``, ``not in``; ``is`` and ``is not`` with None for null, which
            no other operator selects. Times are ISO-8601 text or datetimes. Files and row groups whose
            partition or statistics show that they have no such row are not read.
        version: The version to read.
        timestamp: The version that was the newest one at this time: text in ISO-8601
            (``"2026-01-01T00:00:00Z"``) or a datetime; in UTC if it has no zone.
        bounded: False: the source never ends; new versions are looked for every `discovery_interval_ms`.
        starting_version: Unbounded only: do not read a whole version first, but what was added by this one
            and later ones; ``"latest"``: by versions after the newest one. As for Kafka's starting offsets,
            a restored job continues at its position instead.
        starting_timestamp: Unbounded only: the same, from the first version that was committed at this time
            or later.
        ignore_deletes: Unbounded only: pass versions that only remove files (a DELETE of whole partitions)
            instead of failing.
        ignore_changes: Unbounded only: pass versions that rewrite files (UPDATE, MERGE, DELETE, overwrite)
            instead of failing; all rows of the rewritten files are read, also those that were read before.
            What is removed stays in the results. Includes `ignore_deletes`. Compaction (OPTIMIZE) changes no
            rows; it is always passed.
        discovery_interval_ms: How often to look for new versions, in milliseconds; 5,000 by default.
        split_bytes: Larger files are read by several subtasks, by row groups of at least this size together.
        storage_options: Options of deltalake (``AWS_REGION``, …). Text may be ``${env:NAME}``,
            ``${file:PATH}`` or a `Secret`.

    Rows that were deleted by deletion vectors are not read, and columns of a table with column mapping are
    found by what its files call them. A column of type variant is refused.

    Raises:
        ConfigError: an argument is wrong, or deltalake is not installed; at `schema` or when the job starts:
            no table, version or column, or a filter that does not fit its column; while it runs: rows were
            changed or deleted, the table was replaced, or a version or file was removed before it was read.

    >>> DeltaSource("/lake/flights", columns=["carrier", "delay"], filter=[("delay", ">", 60)]).name
    'delta'
    """

    def __init__(
        self,
        table_uri: str,
        *,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
        version: int | None = None,
        timestamp: At | None = None,
        bounded: bool = True,
        starting_version: int | Literal["latest"] | None = None,
        starting_timestamp: At | None = None,
        ignore_deletes: bool = False,
        ignore_changes: bool = False,
        discovery_interval_ms: int = DISCOVERY_INTERVAL_MS,
        split_bytes: int = SPLIT_BYTES,
        storage_options: Mapping[str, str | Secret] | None = None,
    ) -> None:
        require("delta", "DeltaSource")
        self._uri = checked_uri(table_uri, "source")
        self._columns = None if columns is None else common.checked_columns("a Delta source", columns)
        self._groups = common.groups_of(filter, "DeltaSource")
        starts = {"starting_version": starting_version, "starting_timestamp": starting_timestamp}
        common.check_one_begin("a Delta source", {"version": version, "timestamp": timestamp} | starts)
        common.check_unbounded(
            "versions", bounded, starts | {"ignore_deletes": ignore_deletes, "ignore_changes": ignore_changes}
        )
        self._begin = {
            "bounded": bounded,
            "version": _checked_version("version", version),
            "timestamp_ms": common.time_ms("timestamp", timestamp),
            "starting_version": starting_version
            if starting_version == "latest"
            else _checked_version("starting_version", starting_version),
            "starting_timestamp_ms": common.time_ms("starting_timestamp", starting_timestamp),
        }
        if split_bytes < 1 or (discovery_interval_ms < 1 and not bounded):
            raise ConfigError(
                "split_bytes and discovery_interval_ms must be above 0, not "
                f"{split_bytes}, {discovery_interval_ms}"
            )
        self._ignore = {"ignore_deletes": ignore_deletes, "ignore_changes": ignore_changes}
        self._interval_ms = 0 if bounded else discovery_interval_ms
        self._split_bytes = split_bytes
        self._selection: Selection | None = None
        self._storage_options = dict(storage_options or {})
        self._found: tuple[pa.Schema, pa.Schema] | None = None
        self._mapping = NONE  # of the columns that were found

    def __repr__(self) -> str:
        return (
            f"DeltaSource({self._uri!r}, columns={self._columns}, filter={self._groups}, {self._begin}, "
            f"storage_options={redacted(self._storage_options)})"
        )

    @property
    def name(self) -> str:
        return "delta"

    @property
    def table_uri(self) -> str:
        """The absolute path or URL of the table."""
        return self._uri

    @property
    def schema(self) -> pa.Schema:
        return plain_schema(self._schemas()[0])

    def lineage_datasets(self) -> list[LineageDataset]:
        """See `unistream.port.lineage`."""
        return [dataset_at(self._uri, "delta")]

    def info(self) -> SourceInfo:
        from unistream.connector.delta.source_start import DeltaSourceOptions, DeltaStart

        options = DeltaSourceOptions(
            table_uri=self._uri,
            start=msgspec.convert(self._begin, DeltaStart),
            schema=common.written_schema(self._schemas()[1]),
            filter=common.plain_filter(self._row_filter()),
            mapping=self._mapping,
            split_bytes=self._split_bytes,
            storage_options=self._storage_options,
            **self._ignore,
        )
        return SourceInfo(
            connector="delta",
            options=msgspec.to_builtins(options),
            bounded=self._interval_ms == 0,
            pull=True,
            discovery_interval_ms=self._interval_ms,
        )

    def create_reader(self) -> SourceReader:
        schema, read = self._schemas()
        spec = DeltaSpec(
            table_uri=self._uri,
            schema=schema,
            read=read,
            row_filter=self._row_filter(),
            mapping=self._mapping,
            selection=self._selection,
        )
        return delta_reader(spec, table_files(self._uri, self._storage()))

    def event_time_span(self, column: str) -> tuple[int, int] | None:
        """The least and the greatest time in the statistics of the table's files; None: they do not say."""
        from unistream.connector.delta.source_span import time_span
        from unistream.connector.delta.source_start import DeltaStart

        if self._groups:
            return None  # of all rows, not of those that the filter selects
        return time_span(self._uri, self._storage(), msgspec.convert(self._begin, DeltaStart), column)

    def within(self, column: str, range_: TimeRange) -> DeltaSource:
        """A copy of the source with a filter for the range; the source itself if the column is no
        timestamp."""
        kind = self._schemas()[1].field(column).type
        if not pa.types.is_timestamp(kind):
            return self
        inside = common.conditions_of_range(column, kind, range_)
        found = copy.copy(self)
        found._groups = [[*group, *inside] for group in self._groups or [[]]]
        found._found = None
        return found

    def reading(self, columns: frozenset[str]) -> DeltaSource:
        """See `unistream.port.projection`."""
        found = copy.copy(self)
        schema, read = self._schemas()
        needed = columns | set(common.filter_columns(self._row_filter()))
        found._found = (
            pa.schema([field for field in schema if field.name in columns]),
            pa.schema([field for field in read if field.name in needed]),
        )
        return found

    def reading_rows(self, selection: Selection) -> DeltaSource:
        """See `unistream.port.projection`: by the statistics of row groups, and the values of partitions."""
        found = copy.copy(self)
        found._selection = selection
        return found

    def _storage(self) -> dict[str, str]:
        options: dict[str, str] = resolved_options("storage option", self._storage_options)
        return delta_options(self._uri, options)

    def _row_filter(self) -> common.RowFilter:
        return common.checked_filter(self._groups, self._schemas()[1], f"table {self._uri}")

    def _schemas(self) -> tuple[pa.Schema, pa.Schema]:
        """The schemas of the rows, and of what is read for them with the columns of the filter; as
        `TableFacts.stored`."""
        if self._found is None:
            from unistream.connector.delta.source_start import DeltaStart, find_columns, selected_schema

            table = find_columns(self._uri, self._storage(), msgspec.convert(self._begin, DeltaStart))
            schema = selected_schema(table.facts, table.version, self._columns)
            row_filter = common.checked_filter(self._groups, table.facts.schema, f"table {self._uri}")
            others = [name for name in common.filter_columns(row_filter) if name not in schema.names]
            read = selected_schema(table.facts, table.version, [*schema.names, *others])
            self._found, self._mapping = (schema, read), table.facts.mapping
        return self._found


def create_discovery(info: SourceInfo) -> SplitDiscovery:
    """Entry point of the connector registry.

    Raises:
        ConfigError: deltalake is not installed here, or the options are not those of a Delta source.
    """
    require("delta", "a Delta source")
    from unistream.connector.delta.source_discovery import DeltaDiscovery
    from unistream.connector.delta.source_start import DeltaSourceOptions

    return DeltaDiscovery(common.discovery_options(info, DeltaSourceOptions, "Delta"), info)


# --- arguments ------------------------------------------------------------------------------------


def _checked_version(name: str, version: object) -> int | None:
    if version is None or (type(version) is int and version >= 0):
        return version
    latest = ' or "latest"' if name == "starting_version" else ""
    raise ConfigError(f"{name} must be the number of a version{latest}, not {version!r}")

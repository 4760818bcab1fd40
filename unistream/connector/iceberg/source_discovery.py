"""Finds the splits of an Iceberg table: the files of one snapshot, then those that each later one adds.

    first    ── the files of a snapshot ──┬─► bounded: that is all
             ── or none ──────────────────┴─► position: that snapshot
    then     ── position ─► snapshots behind it ─► their new files, and the next position

The position is in every checkpoint, and so is the id of the table (`KnownSplits.origin`). What does not fit
together is an error, and nothing is skipped: another table, one that was set back, snapshots that expired
before they were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from unistream.base.errors import UNDECODABLE, ConfigError
from unistream.base.os_failures import failure
from unistream.connector.common import may_select, row_group_ranges
from unistream.connector.common.columns_by_id import (
    NamedField,
    identified,
    name_mapping,
    plain_type,
    stored_columns,
)
from unistream.connector.iceberg.source_log import REPLACE, START_AGAIN, SnapshotFacts, check_passable
from unistream.connector.iceberg.source_split import (
    Deletes,
    IcebergSplit,
    LakeFile,
    check_columns_of_deletes,
    encode_split,
    file_bounds,
    least_event_time,
    part_of_file,
    whole_file,
)
from unistream.connector.iceberg.source_start import (
    IcebergSourceOptions,
    IcebergStartSnapshots,
    find_begin,
    find_columns,
)
from unistream.connector.iceberg.source_storage import LakeFiles
from unistream.connector.iceberg.source_table import Added, IcebergSourceTable
from unistream.connector.iceberg.table import IcebergSinkTable
from unistream.model.columns.event_time import is_event_time
from unistream.model.graph import SourceInfo
from unistream.model.messages import Split
from unistream.model.positions import SourcePositions
from unistream.model.splits import FoundSplits, KnownSplits

SPLITS_MAX: Final = 1_000_000  # of a snapshot
SPLITS_AT_ONCE: Final = 100_000  # of later snapshots; the others are found by the next discovery
FOOTERS_AT_ONCE: Final = 16  # read at the same time; an object store answers each in some 20 ms


class _SnapshotPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The last snapshot that was read; None: the table had none."""

    snapshot: int | None


class IcebergDiscovery:
    """See `unistream.port.source.GrowingDiscovery` and `RecordedDiscovery`."""

    def __init__(self, options: IcebergSourceOptions, info: SourceInfo) -> None:
        self._options = options
        self._where = f"table {options.address.text}"
        self._schema = options.read_schema()
        self._filter = options.row_filter()
        self._files = LakeFiles(options.address)
        self._time_column = _time_column(info, self._schema)

    def discover(self) -> Sequence[Split]:
        return self.find(None).splits

    def find(self, known: KnownSplits | None) -> FoundSplits:
        """Raises ConfigError (see above, and `find_begin`) or Unreachable."""
        with IcebergSinkTable.opened(self._options.address) as lake:
            table = lake.load()
            is_first = known is None or not known.position
            if table is None:
                raise self._gone() if not is_first else no_table(self._options.address.text)
            current = IcebergSourceTable(self._where, table)
            if known is None or is_first:
                return self._first(current)
            if known.origin != current.id:
                raise ConfigError(
                    f"{self._where} was replaced since the job began to read it (its id was {known.origin} "
                    f"and is {current.id}), so the snapshots of the job are of another table; {START_AGAIN}"
                )
            try:
                position = msgspec.json.decode(known.position, type=_SnapshotPosition)
            except UNDECODABLE as error:
                raise ConfigError(f"the position of an Iceberg source is unreadable: {error}") from error
            return self._following(current, position.snapshot, None)

    def find_recorded(self, connector: str, name: str) -> tuple[FoundSplits, SourcePositions]:
        """The splits and the recorded positions of the snapshot that is read. Raises ConfigError (also as
        `find_recorded` of `connector.common`) or Unreachable."""
        with IcebergSinkTable.opened(self._options.address) as lake:
            loaded = lake.load()
            if loaded is None:
                raise no_table(self._options.address.text)
            table = IcebergSourceTable(self._where, loaded)
            snapshot = find_begin(table, self._options.start).snapshot
            if snapshot is None:
                raise ConfigError(f"{self._where}: positions are those of a snapshot, and none is read")
            return self._first(table), table.recorded(snapshot, connector, name)

    def close(self) -> None:
        """Holds nothing between calls."""

    def _gone(self) -> ConfigError:
        return ConfigError(
            f"{self._where} was removed since the job began to read it; a table that is created there now is "
            f"another one: {START_AGAIN}"
        )

    # --- the first time ---------------------------------------------------------------------------

    def _first(self, table: IcebergSourceTable) -> FoundSplits:
        begin = find_begin(table, self._options.start)
        find_columns(table, self._options.start).check_same(self._schema)
        if begin.snapshot is None and (begin.until is not None or not self._options.start.bounded):
            return self._following(table, begin.position, begin)
        splits = [] if begin.snapshot is None else self._of_snapshot(table, begin.snapshot)
        return _found(table, splits, begin.position)

    def _of_snapshot(self, table: IcebergSourceTable, snapshot: SnapshotFacts) -> list[Split]:
        splits = self._splits(table, table.files(snapshot, self._filter, self._schema), snapshot)
        if len(splits) > SPLITS_MAX:
            raise ConfigError(
                f"{self._where}, snapshot {snapshot.id}: more than {SPLITS_MAX} splits; increase split_bytes "
                "of the source, or compact the table (rewrite_data_files)"
            )
        return splits

    # --- later snapshots --------------------------------------------------------------------------

    def _following(
        self, table: IcebergSourceTable, position: int | None, begin: IcebergStartSnapshots | None
    ) -> FoundSplits:
        """The splits behind a position. `begin`: of a bounded source, which ends at a snapshot."""
        until = None if begin is None else begin.until
        history = table.history(self._options.start.ref)
        if until is not None:
            history = replace(history, head=until.id)
        following = history.following(position)
        if following and not self._options.start.bounded:
            table.columns(None).check_same(self._schema)
        splits: list[Split] = []
        named = begin is not None and isinstance(self._options.start.starting_snapshot, int)
        for snapshot in following:
            if len(splits) >= SPLITS_AT_ONCE and until is None:
                break
            if snapshot.operation != REPLACE or position is None:
                added = table.added(snapshot)
                if position is None and added.inherits and not named:
                    raise history.first_expired()
                splits += self._added(table, snapshot, added)
            position = snapshot.id
        return _found(table, splits, position)

    def _added(self, table: IcebergSourceTable, snapshot: SnapshotFacts, added: Added) -> list[Split]:
        if snapshot.operation == REPLACE:
            return []
        check_passable(
            self._where,
            snapshot,
            adds=len(added.files),
            removes=added.removes,
            ignore_deletes=self._options.ignore_deletes,
            ignore_changes=self._options.ignore_changes,
        )
        return self._splits(table, ((file, ()) for file in added.files), snapshot)

    # --- files to splits --------------------------------------------------------------------------

    def _splits(
        self,
        table: IcebergSourceTable,
        files: Iterable[tuple[LakeFile, tuple[Deletes, ...]]],
        snapshot: SnapshotFacts,
    ) -> list[Split]:
        """The splits of the files that may have rows. The footer is read of a file that is larger than a
        split, or whose event times are not in the manifest."""
        keys = table.keys
        splits: list[IcebergSplit] = []
        by_footer: list[IcebergSplit] = []
        for file, deletes in files:
            if not may_select(self._filter, partial(file_bounds, file, self._schema)):
                continue
            check_columns_of_deletes(self._where, deletes, keys)
            least = least_event_time(file, self._schema, self._time_column) if self._time_column else None
            whole = whole_file(file, snapshot.id, deletes, least)
            if file.size > self._options.split_bytes or (self._time_column and least is None):
                by_footer.append(whole)
            else:
                splits.append(whole)
        if by_footer:
            self._files.use(table.io)
            mapping = name_mapping(self._where, table.name_mapping)
            with ThreadPoolExecutor(FOOTERS_AT_ONCE, "iceberg-footers") as pool:
                for parts in pool.map(lambda one: self._parts(one, mapping), by_footer):
                    splits += parts
        return [encode_split(split) for split in splits]

    def _parts(self, whole: IcebergSplit, mapping: Sequence[NamedField] | None) -> list[IcebergSplit]:
        where = f"{self._where}: file {whole.path}"
        with self._files.open(whole.path, whole.size) as opened:
            try:
                metadata = pq.read_metadata(opened)
            except (pa.ArrowInvalid, OSError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise failure(where, error) from error
                raise ConfigError(f"{where} is no Parquet file: {error}") from error
        column, declared = self._time_column, ""
        if column:
            wanted = self._schema.field(column)
            file_schema = identified(where, metadata.schema.to_arrow_schema(), mapping)
            stored = stored_columns(where, file_schema, pa.schema([wanted])).get(column)
            column, declared = ("", "") if stored is None else (stored.name, str(plain_type(wanted.type)))
        ranges = row_group_ranges(metadata, self._options.split_bytes, column, declared)
        return [part_of_file(whole, one) for one in ranges]


def no_table(text: str) -> ConfigError:
    return ConfigError(f"table {text} does not exist")


def _found(table: IcebergSourceTable, splits: Sequence[Split], position: int | None) -> FoundSplits:
    encoded = msgspec.json.encode(_SnapshotPosition(snapshot=position)).decode()
    return FoundSplits(splits=tuple(splits), origin=table.id, position=encoded)


def _time_column(info: SourceInfo, schema: pa.Schema) -> str:
    """The column of the event times; empty: the rows have no such column, which readers refuse, or their
    times are not in a column."""
    name = info.timestamp_column
    return name if name in schema.names and is_event_time(schema.field(name).type) else ""

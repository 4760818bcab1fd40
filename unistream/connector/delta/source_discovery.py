"""Finds the splits of a Delta table: the files of one version, then those that each later version adds.

    first    ── the files of a version ──┬─► bounded: that is all
             ── or none ─────────────────┴─► position: the next version
    then     ── position ─► commits that are there ─► their files, and the next position

The position is in every checkpoint, and so is the id of the table (`KnownSplits.origin`). What follows it is
read only if the commit before it is the one that was read. What does not fit together is an error, and
nothing is skipped: another table, an older one, commits that were cleaned up before they were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from unistream.base.errors import UNDECODABLE, ConfigError
from unistream.base.object_stores import delta_options
from unistream.base.os_failures import failure
from unistream.base.secrets import resolved_options
from unistream.connector.common import may_select, row_group_ranges
from unistream.connector.common.columns_by_id import stored_columns
from unistream.connector.delta.column_mapping import NONE, identified_columns
from unistream.connector.delta.positions import find_positions
from unistream.connector.delta.source_log import Commit, Metadata, TableLog, added_files, check_features
from unistream.connector.delta.source_split import (
    DataFile,
    DeltaSplit,
    encode_split,
    file_bounds,
    least_event_time,
    part_of_file,
    whole_file,
)
from unistream.connector.delta.source_start import (
    DeltaSourceOptions,
    DeltaStartVersions,
    check_columns,
    find_begin,
)
from unistream.connector.delta.source_storage import open_data_file, table_files
from unistream.connector.delta.source_table import DeltaSourceTable, facts_of, table_log
from unistream.model.columns.event_time import is_event_time
from unistream.model.graph import SourceInfo
from unistream.model.messages import Split
from unistream.model.positions import SourcePositions
from unistream.model.splits import FoundSplits, KnownSplits

SPLITS_MAX: Final = 1_000_000  # of a snapshot
SPLITS_AT_ONCE: Final = 100_000  # of later versions; the others are found by the next discovery
FOOTERS_AT_ONCE: Final = 16  # read at the same time; an object store answers each in some 20 ms

START_AGAIN: Final = (
    "to read on without what is missing, start the job without the checkpoint, or give the source another "
    "uid and start with --allow-non-restored-state (allow_non_restored_state=True)"
)


class _VersionPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The next version to read. `digest`: of the commit before it; empty: not known. `modified_ns`: when that
    was written; None: it is not there any more."""

    next: int
    digest: str = ""
    modified_ns: int | None = None


class DeltaDiscovery:
    """See `unistream.port.source.GrowingDiscovery` and `RecordedDiscovery`."""

    def __init__(self, options: DeltaSourceOptions, info: SourceInfo) -> None:
        self._options = options
        self._uri = options.table_uri
        given: dict[str, str] = resolved_options("storage option", options.storage_options)
        self._storage = delta_options(self._uri, given)
        self._files = table_files(self._uri, self._storage)
        self._schema = options.read_schema()
        self._filter = options.row_filter()
        self._time_column = _time_column(info, self._schema)

    def discover(self) -> Sequence[Split]:
        return self.find(None).splits

    def find(self, known: KnownSplits | None) -> FoundSplits:
        """Raises ConfigError (see above, and `find_begin`) or Unreachable."""
        if known is None or not known.position:
            return self._first(find_begin(self._uri, self._storage, self._options.start))
        try:
            position = msgspec.json.decode(known.position, type=_VersionPosition)
        except UNDECODABLE as error:
            raise ConfigError(f"the position of a Delta source is unreadable: {error}") from error
        return self._following(position, known.origin)

    def find_recorded(self, connector: str, name: str) -> tuple[FoundSplits, SourcePositions]:
        """The splits and the recorded positions of the version that is read. Raises ConfigError (also as
        `find_positions`) or Unreachable."""
        begin = find_begin(self._uri, self._storage, self._options.start)
        table = begin.snapshot
        if table is None:
            raise ConfigError(f"table {self._uri}: positions are those of a version, and none is read")
        positions = find_positions(
            self._uri,
            table.version,
            table_log(self._uri, self._storage).commit,
            connector=connector,
            name=name,
            held=table.transaction_version,
        )
        return self._first(begin), positions

    def close(self) -> None:
        """Holds nothing between calls."""

    # --- the first time ---------------------------------------------------------------------------

    def _first(self, begin: DeltaStartVersions) -> FoundSplits:
        newest = begin.columns_of
        origin = newest.facts.id
        check_columns(newest.facts, newest.version, self._schema)
        if begin.snapshot is None and begin.next <= newest.version:
            return self._following(_VersionPosition(next=begin.next), origin)
        splits = [] if begin.snapshot is None else self._of_snapshot(begin.snapshot)
        log = table_log(self._uri, self._storage)
        last = log.commit(begin.next - 1)
        return self._found(log, splits, origin, begin.next, "" if last is None else last.digest)

    def _of_snapshot(self, table: DeltaSourceTable) -> list[Split]:
        check_columns(table.facts, table.version, self._schema, all_there=False)
        there = [field for field in self._schema if table.facts.held(field) is not None]
        splits = self._splits(table.files(there), table.version)
        if len(splits) > SPLITS_MAX:
            raise ConfigError(
                f"table {self._uri}, version {table.version}: more than {SPLITS_MAX} splits; increase "
                "split_bytes of the source, or compact the table (OPTIMIZE)"
            )
        return splits

    # --- later versions ---------------------------------------------------------------------------

    def _following(self, position: _VersionPosition, origin: str) -> FoundSplits:
        log = table_log(self._uri, self._storage)
        version, digest = position.next, position.digest
        if digest:
            self._check_same_history(log, position, origin)
        splits: list[Split] = []
        while len(splits) < SPLITS_AT_ONCE and (commit := log.commit(version)) is not None:
            splits += self._added(commit, origin)
            version, digest = version + 1, commit.digest
        if version == position.next:
            self._check_nothing_new(log, version, origin)
        return self._found(log, splits, origin, version, digest)

    def _found(
        self, log: TableLog, splits: Sequence[Split], origin: str, following: int, digest: str
    ) -> FoundSplits:
        position = _VersionPosition(next=following, digest=digest, modified_ns=log.modified_ns(following - 1))
        return FoundSplits(
            splits=tuple(splits), origin=origin, position=msgspec.json.encode(position).decode()
        )

    def _added(self, commit: Commit, origin: str) -> list[Split]:
        if commit.protocol is not None:
            check_features(self._uri, commit.protocol.reader_features)
        if commit.metadata is not None:
            self._check_metadata(commit.metadata, commit.version, origin)
        files = added_files(
            self._uri,
            commit,
            list(self._schema),
            deleted=self._deleted,
            ignore_deletes=self._options.ignore_deletes,
            ignore_changes=self._options.ignore_changes,
        )
        return self._splits(files, commit.version)

    def _deleted(self, version: int) -> dict[str, bytes]:
        """See `source_log.Deleted`."""
        return DeltaSourceTable.open_version(self._uri, self._storage, version).deleted_by_path()

    def _check_metadata(self, metadata: Metadata, version: int, origin: str) -> None:
        """A column that is not there yet is null; one that was removed is an error."""
        if metadata.id != origin:
            raise ConfigError(
                f"table {self._uri}: version {version} is of another table (its id is {metadata.id}, the job "
                f"reads the one with id {origin}), since one replaced the other; {START_AGAIN}"
            )
        facts = facts_of(self._uri, metadata)
        check_columns(facts, version, self._schema, all_there=False)
        if any(facts.held(field) is None for field in self._schema):
            newest = self._newest(origin)
            check_columns(newest.facts, newest.version, self._schema)

    # --- is it the same table? --------------------------------------------------------------------

    def _check_same_history(self, log: TableLog, position: _VersionPosition, origin: str) -> None:
        """Checks, before what follows the position is read, that the table is still the one that was read.
        Without anything that follows, the time of the last commit is enough: it may be large, and is looked
        at every few seconds."""
        modified_ns = log.modified_ns(position.next - 1)
        unchanged = modified_ns is not None and modified_ns == position.modified_ns
        if unchanged and log.modified_ns(position.next) is None:
            return
        last = log.commit(position.next - 1)
        if last is None:
            self._newest(origin)  # it was cleaned up since, if this is the same table
        elif last.digest != position.digest:
            raise ConfigError(
                f"table {self._uri}: version {position.next - 1} is not the one that the job has read, so "
                f"the table was removed or set back, and written again; {START_AGAIN}"
            )

    def _check_nothing_new(self, log: TableLog, following: int, origin: str) -> None:
        """Checks that there is no commit `following`: it is not written yet, or something has happened to the
        table."""
        if log.modified_ns(following - 1) is not None and log.last_checkpoint() < following:
            return
        newest = self._newest(origin)
        if newest.version < following - 1:
            raise ConfigError(
                f"table {self._uri} is at version {newest.version}, but the job has read up to version "
                f"{following - 1}: it was set back, and what is written now may be something else; "
                f"{START_AGAIN}"
            )
        if newest.version >= following and log.modified_ns(following) is None:
            raise ConfigError(
                f"table {self._uri}: version {following} was cleaned up from its log before it was read; the "
                f"table is at version {newest.version}. Keep the log for longer than a job may stand still "
                f"(delta.logRetentionDuration); {START_AGAIN}"
            )

    def _newest(self, origin: str) -> DeltaSourceTable:
        """Raises ConfigError unless it is the table that the job reads."""
        newest = DeltaSourceTable.open(self._uri, self._storage)
        if newest is None:
            raise ConfigError(
                f"table {self._uri} was removed since the job began to read it; a table that is created "
                f"there now is another one: {START_AGAIN}"
            )
        if newest.facts.id != origin:
            raise ConfigError(
                f"table {self._uri} was replaced since the job began to read it (its id was {origin} and is "
                f"{newest.facts.id}), so the versions of the job mean others there; {START_AGAIN}"
            )
        return newest

    # --- files to splits --------------------------------------------------------------------------

    def _splits(self, files: Iterable[DataFile], version: int) -> list[Split]:
        """The splits of the files that may have rows. The footer is read of a file that is larger than a
        split, or whose event times are not in the log."""
        splits: list[DeltaSplit] = []
        by_footer: list[tuple[DataFile, int | None]] = []
        for file in files:
            if not may_select(self._filter, partial(file_bounds, file, self._schema)):
                continue
            least = least_event_time(file, self._schema, self._time_column) if self._time_column else None
            if file.size > self._options.split_bytes or (self._time_column and least is None):
                by_footer.append((file, least))
            else:
                splits.append(whole_file(file, version, least))
        if by_footer:
            with ThreadPoolExecutor(FOOTERS_AT_ONCE, "delta-footers") as pool:
                for parts in pool.map(lambda one: self._parts(one[0], one[1], version), by_footer):
                    splits += parts
        return [encode_split(split) for split in splits]

    def _parts(self, file: DataFile, least: int | None, version: int) -> list[DeltaSplit]:
        column = self._time_column
        with open_data_file(self._uri, self._files, whole_file(file, version, least)) as opened:
            try:
                metadata = pq.read_metadata(opened)
            except (pa.ArrowInvalid, OSError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise failure(f"table {self._uri}: file {file.path}", error) from error
                raise ConfigError(
                    f"table {self._uri}: file {file.path} is no Parquet file: {error}"
                ) from error
        declared, stored = "", ""
        if column and column not in file.partition:
            declared = str(self._schema.field(column).type)
            stored = self._stored_name(metadata, column, file)
        ranges = row_group_ranges(metadata, self._options.split_bytes, stored, declared if stored else "")
        return [part_of_file(file, version, found, least) for found in ranges]

    def _stored_name(self, metadata: pq.FileMetaData, column: str, file: DataFile) -> str:
        """The name of a column in a file; empty: it does not have it."""
        mode = self._options.mapping
        if mode == NONE:
            return column
        wanted = pa.schema([self._schema.field(column)])
        where = f"table {self._uri}: file {file.path}"
        found = identified_columns(where, metadata.schema.to_arrow_schema(), wanted, mode)
        stored = stored_columns(where, found, wanted).get(column)
        return "" if stored is None else stored.name


def _time_column(info: SourceInfo, schema: pa.Schema) -> str:
    """The column of the event times; empty: the rows have no such column, which readers refuse, or their
    times are not in a column."""
    name = info.timestamp_column
    return name if name in schema.names and is_event_time(schema.field(name).type) else ""

"""The only module that calls deltalake: one table, loaded once and kept up to date.

deltalake 1.6 (docs/decision/delta-commit.md) commits any transaction version, even a lower one, and any file,
even a missing one; it compares application ids only with commits newer than the loaded snapshot. So the
caller checks a snapshot and `append`s to exactly that snapshot: without retries, writing the next log entry
fails after a concurrent commit.

`update_incremental` does not detect that a loaded table was removed, or created again with fewer versions. So
the log entry of the loaded version is compared first; if it differs, the table is loaded from scratch.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import (
    CommitProperties,
    DeltaTable,
    QueryBuilder,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction

from unistream.base import durable_files
from unistream.base.errors import ConfigError, UnistreamError, Unreachable
from unistream.connector.common import DELETES, Conflict, Unknown, Upsert
from unistream.connector.delta.access import brief, failed, refused_access
from unistream.connector.delta.column_mapping import MODE, NAME, NONE
from unistream.connector.delta.schema import TableShape, check_rewritable
from unistream.connector.delta.source_log import COMPACTION_KEY, TableLog, checked_path
from unistream.connector.delta.source_split import DataFile
from unistream.connector.delta.source_storage import table_files
from unistream.connector.delta.source_table import DeltaSourceTable, logged_value
from unistream.connector.delta.stage import DeltaFile
from unistream.connector.delta.upsert import predicate, quoted
from unistream.connector.delta.writer_features import column_rules

CHECKPOINT_KEY = "unistream.checkpoint-id"
LINEAGE_KEY = "unistream.lineage"
SINK_KEY = "unistream.sink-uid"
JOB_KEY = "unistream.job-id"
SNAPSHOT_KEY = "unistream.snapshot"
NEAR = 10  # versions in which the last commit is most likely
LOOK_BACK = 1000  # versions in which it is looked for
_REFUSAL: Final = re.compile("Unsupported|does not support|append-only")
"""The text of a commit that fails as one that has met a conflict does, and would do so for ever."""
_IDENTITY_VERSION: Final = 6  # of writers, before features had names: deltalake commits nothing there
_UNQUOTED: Final = "/!$&'()+,-.:;=@_~"  # besides letters and digits


class Removed(UnistreamError):
    """The table no longer exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """One append. `app_id` and `version` are its identity in the table; `owners`: further transactions
    (`unistream.connector.delta.positions`)."""

    files: Sequence[DeltaFile]
    app_id: str
    version: int
    committed_ms: int
    metadata: Mapping[str, str]
    owners: Mapping[str, int] = field(default_factory=dict)


class DeltaSinkTable:
    """A loaded snapshot of one Delta table."""

    def __init__(self, uri: str, options: Mapping[str, str], table: DeltaTable) -> None:
        self._uri = uri
        self._options = dict(options)
        self._table = table
        self._log = DeltaStorageHandler(uri, self._options or None)
        self._entry = self._find_entry()

    @classmethod
    def open(cls, uri: str, options: Mapping[str, str]) -> Self | None:
        """Loads the newest version of a table; None: there is no table.

        Raises:
            ConfigError: it needs unsupported features.
            Unreachable: it could not be read.
        """
        try:
            with _reading(uri):
                return cls(uri, options, _load(uri, options))
        except TableNotFoundError:
            return None

    @classmethod
    def create(
        cls, uri: str, options: Mapping[str, str], schema: pa.Schema, partition_by: Sequence[str]
    ) -> Self:
        """The new table, or one that was created concurrently.

        Raises:
            ConfigError: no permission.
            Unreachable: the storage failed; it may have been created.
        """
        try:
            DeltaTable.create(
                uri,
                schema,
                mode="ignore",
                partition_by=list(partition_by),
                storage_options=dict(options) or None,
            )
        except PermissionError as error:
            raise ConfigError(f"table {uri} could not be created: {brief(error)}") from error
        except (DeltaError, OSError) as error:
            failure: Exception = error  # unless another creator was faster, which `open` shows
        else:
            failure = Unreachable("it does not exist")
        table = cls.open(uri, options)
        if table is None:
            refused = refused_access(uri, failure)
            raise refused or Unreachable(f"table {uri} could not be created: {brief(failure)}") from failure
        table._sync_log_entry(table.version)
        return table

    def refresh(self) -> None:
        """Loads the newest snapshot of the table that exists now. Raises Removed, or as `open`."""
        try:
            with _reading(self._uri):
                if self._entry is not None and self._find_entry() == self._entry:
                    self._table.update_incremental()
                else:
                    self._table = _load(self._uri, self._options)
                self._entry = self._find_entry()
        except TableNotFoundError as error:
            raise Removed(f"table {self._uri} no longer exists") from error

    def _find_entry(self) -> tuple[int | None, int | None] | None:
        """Finds the log entry of the loaded version: (bytes, modification time); None: there is none, for
        example after a cleanup of the log."""
        [found] = self._log.get_file_info([f"_delta_log/{self.version:020d}.json"])
        return (found.size, found.mtime_ns) if found.is_file else None

    @property
    def table_id(self) -> str:
        """The id that the table was given at its creation; it never changes."""
        return str(self._table.metadata().id)

    @property
    def configuration(self) -> dict[str, str]:
        return dict(self._table.metadata().configuration)

    @property
    def version(self) -> int:
        return int(self._table.version())

    @property
    def shape(self) -> TableShape:
        return shape_of(self._uri, self._table)

    def transaction_version(self, app_id: str) -> int | None:
        """The last version committed under `app_id` in this snapshot."""
        found = self._table.transaction_version(app_id)
        return None if found is None else int(found)

    def rows(self) -> pa.Table:
        """All rows, read by deltalake's own engine: Arrow's calls Python's file system on threads that may
        outlive the interpreter, which ends it by SIGABRT. Raises ConfigError, Unreachable."""
        mode = self.configuration.get(MODE) or NONE
        if mode not in (NONE, NAME):
            raise ConfigError(
                f"table {self._uri} uses column mapping ({mode}): deltalake looks for the columns of a file "
                "by their names, and gives nulls where these are others; DeltaSource reads it"
            )
        with _reading(self._uri):
            query = QueryBuilder().register("rows", self._table)
            return pa.table(query.execute("SELECT * FROM rows").read_all())

    def column_names(self) -> list[str]:
        """The names of the table's columns from its log: no file is read."""
        return [field.name for field in self._table.schema().fields]

    def row_count(self) -> int | None:
        """The rows of the table by the statistics of its files, and their deletion vectors; None: a file has
        none."""
        rows = pa.table(self._table.get_add_actions(flatten=True)).column("num_records")
        if rows.null_count:
            return None
        return int(pc.sum(rows).as_py() or 0) - DeltaSourceTable(self._uri, self._table).deleted_rows()

    def active_paths(self) -> frozenset[str]:
        """Data files of this snapshot, relative to the table."""
        return frozenset(pa.table(self._table.get_add_actions(flatten=True)).column("path").to_pylist())

    def small_files(self, bytes_max: int) -> list[DataFile]:
        """The data files of less than so many bytes that `rewrite` can remove, the oldest first.

        Raises:
            ConfigError: a file has a deletion vector, or is in another folder; the table has features or
                columns that are not known.
        """
        seen = self._rewritable()
        actions = pa.table(self._table.get_add_actions())
        small = actions.filter(pc.less(actions.column("size_bytes"), bytes_max)).to_pylist()
        found = [
            DataFile(
                path=checked_path(self._uri, one["path"]),
                size=one["size_bytes"],
                partition={name: logged_value(one["partition"][name]) for name in seen.facts.partition_by},
            )
            for one in sorted(small, key=lambda one: (one["modification_time"], one["path"]))
        ]
        logged = {one["path"] for one in small}
        return [file for file in found if logged_path(file.path) in logged]

    def has_all(self, files: Sequence[DataFile]) -> bool:
        """This snapshot has these files, with all of their rows. Raises as `small_files`."""
        self._rewritable()
        paths = pa.table(self._table.get_add_actions()).column("path")
        wanted: Any = pa.array([logged_path(file.path) for file in files])
        return bool(pc.all(pc.is_in(wanted, value_set=paths.combine_chunks())).as_py())

    def _rewritable(self) -> DeltaSourceTable:
        seen = DeltaSourceTable(self._uri, self._table)
        if seen.facts.mapping != NONE:
            raise ConfigError(
                f"table {self._uri} uses column mapping ({seen.facts.mapping}): its files have other names "
                "for the columns, and are not written again"
            )
        if seen.facts.unreadable:
            names = ", ".join(sorted(seen.facts.unreadable))
            raise ConfigError(f"table {self._uri} has columns that cannot be written again: {names}")
        seen.refuse_deletion_vectors()
        return seen

    def rewrite(self, removed: Sequence[DataFile], added: Sequence[DeltaFile], note: str) -> None:
        """Puts `added`, which have the same rows, in the place of `removed`, which this snapshot has, as the
        version after it. Durable when it returns. `note`: what the log says of it.

        Raises:
            As `append`.
        """
        at_ms = time.time_ns() // 1_000_000
        gone = [
            RemoveAction(
                path=file.path,
                data_change=False,
                deletion_timestamp=at_ms,
                size=file.size,
                partition_values=file.partition,
            )
            for file in removed
        ]
        with _committing(self._uri):
            self._table.create_write_transaction(
                [*gone, *(_add_action(file, changes_rows=False) for file in added)],
                "append",
                self._table.schema(),
                list(self._table.metadata().partition_columns),
                commit_properties=CommitProperties(
                    custom_metadata={COMPACTION_KEY: note},
                    max_commit_retries=0,
                ),
            )
        self._sync_log_entry(self.version + 1)

    def seal(self, note: str) -> None:
        """Writes the table's metadata once more, nothing changed, as the version after this snapshot:
        deltalake commits nothing behind it that was begun before. Durable when it returns. `note`: what the
        log says of it.

        Raises:
            As `append`.
        """
        version = self.version + 1
        with _committing(self._uri):
            self._table.alter.set_column_metadata(  # `set_table_properties` also changes the protocol
                self._table.schema().fields[0].name,
                {},
                commit_properties=CommitProperties(
                    custom_metadata={COMPACTION_KEY: note},
                    max_commit_retries=0,
                ),
            )
        self._sync_log_entry(version)

    def version_of(self, lineage: str, sink_uid: str, checkpoint_id: int, limit: int = 1000) -> int | None:
        """The table version that committed `checkpoint_id`, if it is among the last `limit`."""
        wanted = {LINEAGE_KEY: lineage, SINK_KEY: sink_uid, CHECKPOINT_KEY: str(checkpoint_id)}
        for entry in self._table.history(limit):
            if all(entry.get(key) == value for key, value in wanted.items()):
                return int(entry["version"])
        return None

    def last_commit(self, lineage: str | None = None, sink_uid: str | None = None) -> dict[str, str]:
        """The metadata of the newest commit of a line of jobs (None: of any) by a sink (None: any), if it is
        among the last `LOOK_BACK`; else empty."""
        wanted = {LINEAGE_KEY: lineage, SINK_KEY: sink_uid}
        for limit in (NEAR, LOOK_BACK):  # each version is a read
            for entry in self._table.history(limit):
                if entry.get(JOB_KEY) and all(of in (None, entry.get(key)) for key, of in wanted.items()):
                    return {key: str(value) for key, value in entry.items()}
        return {}

    def append(self, commit: TableCommit) -> None:
        """Adds the files as the version after this snapshot. Durable when it returns.

        Raises:
            Conflict: that version exists.
            Unknown: the outcome is unknown.
            Unreachable: it is committed, but may not be durable.
            ConfigError: the table refuses appends or needs unsupported features.
        """
        with _committing(self._uri):
            self._table.create_write_transaction(
                [_add_action(file) for file in commit.files],
                "append",
                self._table.schema(),
                list(self._table.metadata().partition_columns),
                commit_properties=_properties(commit),
            )
        self._sync_log_entry(self.version + 1)

    def merge(self, commit: TableCommit, rows: pa.Table, upsert: Upsert) -> None:
        """Replaces the rows of the keys of `rows` by these, as the version after this snapshot; `rows` has
        each key once. Of `commit`, the files are of no interest. Durable when it returns.

        Raises:
            As `append`.
        """
        self._check_rewritable()
        before = self.version
        columns = [name for name in rows.schema.names if name != DELETES]
        values = {quoted(name): f"s.{quoted(name)}" for name in columns}
        with _committing(self._uri):
            merging = self._table.merge(
                source=rows,
                predicate=predicate(rows, upsert.key),
                source_alias="s",
                target_alias="t",
                commit_properties=_properties(commit),
            )
            kept = None
            if upsert.deletes:
                merging, kept = merging.when_matched_delete(predicate=f"s.{DELETES}"), f"NOT s.{DELETES}"
            merging.when_matched_update(values).when_not_matched_insert(values, predicate=kept).execute()
        if self.version == before:  # rows that only delete what is not there: deltalake has committed nothing
            self.append(replace(commit, files=()))
            return
        self._entry = self._find_entry()
        sync_version(self._uri, self.version)

    def overwrite(self, commit: TableCommit, rows: pa.RecordBatchReader, condition: str | None) -> None:
        """Replaces the rows for which `condition` holds (None: all) by `rows`, for which it holds as well, as
        the version after this snapshot. Of `commit`, the files are of no interest. Durable when it returns.

        Raises:
            As `append`.
        """
        self._check_rewritable()
        with _committing(self._uri):
            write_deltalake(
                self._table,
                rows,
                mode="overwrite",
                predicate=condition,
                commit_properties=_properties(commit),
                writer_properties=WriterProperties(compression="ZSTD"),
            )
        self._entry = self._find_entry()
        sync_version(self._uri, self.version)

    def _check_rewritable(self) -> None:
        """Checks that rows of the table may be replaced. Raises ConfigError: see `check_rewritable`."""
        shape = self.shape
        check_rewritable(f"table {self._uri}", shape.schema, shape.partition_by)

    def _sync_log_entry(self, version: int) -> None:
        """Deltalake does not sync its log: a power cut could lose a commit that the job cannot repeat."""
        if "://" in self._uri:
            return
        folder = os.path.join(self._uri, "_delta_log")
        try:
            for path in (os.path.join(folder, f"{version:020d}.json"), folder, self._uri):
                durable_files.sync(path)
        except OSError as error:
            raise Unreachable(f"table {self._uri}: version {version} is not durable: {error}") from error


def shape_of(uri: str, table: DeltaTable) -> TableShape:
    """What a loaded table requires of added files."""
    metadata, schema, protocol = table.metadata(), table.schema(), table.protocol()
    named = ["identityColumns"] if protocol.min_writer_version == _IDENTITY_VERSION else []
    return TableShape(
        table=uri,
        schema=pa.schema(schema.to_arrow()),
        partition_by=list(metadata.partition_columns),
        configuration=dict(metadata.configuration),
        features=protocol.writer_features or named,
        rules=column_rules(schema.fields),
    )


def sync_version(uri: str, version: int) -> None:
    """Makes a version of a table on a local disk durable: deltalake syncs neither the files that it writes
    nor the log. Raises Unreachable."""
    if "://" in uri:
        return
    commit = TableLog(uri, table_files(uri, {})).commit(version)
    added = [] if commit is None else [checked_path(uri, add.path) for add in commit.adds]
    log = os.path.join("_delta_log", f"{version:020d}.json")
    folders = {os.path.dirname(path) for path in added}
    try:
        for path in (*added, *sorted(folders), log, "_delta_log", ""):
            durable_files.sync(os.path.join(uri, path))
    except OSError as error:
        raise Unreachable(f"table {uri}: version {version} is not durable: {error}") from error


def _properties(commit: TableCommit) -> CommitProperties:
    """The properties of a commit on exactly the loaded snapshot: any other commit is a conflict."""
    return CommitProperties(
        custom_metadata=dict(commit.metadata),
        max_commit_retries=0,
        app_transactions=[
            Transaction(app_id, version, commit.committed_ms)
            for app_id, version in ((commit.app_id, commit.version), *commit.owners.items())
        ],
    )


def _load(uri: str, options: Mapping[str, str]) -> DeltaTable:
    return DeltaTable(uri, storage_options=dict(options) or None)


@contextmanager
def _reading(uri: str) -> Iterator[None]:
    """Raises TableNotFoundError as it is; ConfigError and Unreachable for other errors."""
    try:
        yield
    except TableNotFoundError:
        raise
    except (DeltaError, OSError) as error:
        raise failed(uri, error) from error


@contextmanager
def _committing(uri: str) -> Iterator[None]:
    """Raises Conflict, ConfigError or Unknown, see `DeltaSinkTable.append`."""
    try:
        yield
    except (CommitFailedError, DeltaProtocolError) as error:
        if isinstance(error, DeltaProtocolError) or _REFUSAL.search(str(error)):
            raise ConfigError(f"table {uri} refuses the commit: {brief(error)}") from error
        raise Conflict(brief(error)) from error
    except (DeltaError, OSError) as error:
        raise refused_access(uri, error) or Unknown(brief(error)) from error


def logged_path(path: str) -> str:
    """The path as deltalake writes it to the log, where a path that it is to remove has to be found.

    >>> logged_path("day=2026%2001/ä b.parquet")
    'day=2026%252001/%C3%A4%20b.parquet'
    """
    return quote(path, safe=_UNQUOTED)


def _add_action(file: DeltaFile, *, changes_rows: bool = True) -> Any:
    """Deltalake percent-encodes the path."""
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values=file.partition_values,
        modification_time=file.modification_ms,
        data_change=changes_rows,
        stats=file.stats,
    )

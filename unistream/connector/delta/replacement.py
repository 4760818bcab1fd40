"""Replaces the rows of a range of time by one Delta commit.

deltalake rewrites the files that have rows of the range: what is not in the range is copied (a row without a
time never is in it), what is in it is left out, and the new rows are added; it refuses new rows that are not
in the range. The commit is made *from the version at the fence*: deltalake compares it with each commit since
then, passes those that add rows elsewhere, and refuses after any that

    added or removed rows in the files of the range        "somebody changed the range"
    has the same application id `unistream/backfill/<name>`   it was ours, done before

So neither a repeated call nor a process of the same backfill that wakes up again can replace it twice, and
rows that others added meanwhile are not lost. Commits that change no rows (OPTIMIZE) are passed as long as
they follow the fence directly; behind a commit that does, a compaction of the range counts as a change of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError, TableNotFoundError

from unistream.base.crash_points import crash_point
from unistream.base.errors import ConfigError, OutcomeUnknown, UserCodeError
from unistream.connector.delta.access import brief, failed
from unistream.connector.delta.compaction_watch import SEALED
from unistream.connector.delta.schema import (
    changed_in_partitions,
    check_fits,
    check_rewritable,
    stored_schema,
)
from unistream.connector.delta.source_log import TableLog
from unistream.connector.delta.source_storage import table_files
from unistream.connector.delta.table import shape_of, sync_version
from unistream.model.columns.event_time import event_times
from unistream.model.time_range import TimeRange
from unistream.port.replacement import NewRows, RangeChanged, Replacement, TargetState

NAME_KEY: Final = "unistream.backfill"
RETRIES_MAX: Final = 15  # commits of others while ours is written
HISTORY_MAX: Final = 1_000
WRITTEN_ONCE: Final = 1  # version of the transaction: a backfill replaces once


class DeltaRange:
    """See `unistream.port.replacement.RangeTarget`.

    Args:
        table_uri: Absolute.
        options: Of deltalake.
        filesystem_options: Of fsspec.
    """

    def __init__(
        self,
        table_uri: str,
        column: str,
        *,
        partition_by: tuple[str, ...],
        options: Mapping[str, str],
        filesystem_options: Mapping[str, Any],
    ) -> None:
        self._uri = table_uri
        self._column = column
        self._partition_by = partition_by
        self._options = dict(options) or None
        self._filesystem_options = dict(filesystem_options)

    @property
    def address(self) -> str:
        return self._uri

    @property
    def column(self) -> str:
        return self._column

    @property
    def folder(self) -> str:
        return f"{self._uri}/_unistream_backfill"

    @property
    def filesystem_options(self) -> Mapping[str, Any]:
        return self._filesystem_options

    def look(self) -> TargetState:
        table = self._open()
        return TargetState(id=str(table.metadata().id), version=int(table.version()))

    def count(self, range_: TimeRange) -> int:
        table = self._open()
        return int(self._ask(table, "count(*)", self._within(range_, self._kind(table))).as_py())

    def newest_ms(self) -> int | None:
        newest = self._ask(self._open(), f"max({self._quoted})", "true")
        return int(event_times(pa.array([newest]))[0].as_py()) if newest.is_valid else None

    def find(self, name: str) -> Replacement | None:
        return self._found(self._open(), name)

    def replace(self, name: str, range_: TimeRange, since: TargetState, rows: NewRows | None) -> Replacement:
        newest = self._open()
        if str(newest.metadata().id) != since.id or newest.version() < since.version:
            raise ConfigError(
                f"table {self._uri} is another one than at the fence (id {since.id}, version "
                f"{since.version}): it has id {newest.metadata().id} and version {newest.version()} now"
            )
        done = self._found(newest, name)
        if done is not None:
            self._sync(done)
            return done
        crash_point("backfill.before_replace")
        failure = self._write(name, range_, since, rows, newest)
        newest = self._open()
        done = self._found(newest, name)
        if done is not None:
            self._sync(done)
            crash_point("backfill.replaced")
            return done
        if isinstance(failure, CommitFailedError):
            raise RangeChanged(
                f"table {self._uri}: {_changed(failure)} since version {since.version} (it is at version "
                f"{newest.version()} now)"
            ) from failure
        raise OutcomeUnknown(
            f"table {self._uri}: whether the range was replaced is unknown: {_brief(failure)}"
        ) from failure

    # --- parts ------------------------------------------------------------------------------------

    @property
    def _quoted(self) -> str:
        return '"' + self._column.replace('"', '""') + '"'

    def _within(self, range_: TimeRange, kind: pa.TimestampType) -> str:
        low, high = _literal(range_.begin_ms, kind), _literal(range_.end_ms, kind)
        return f"{self._quoted} >= {low} AND {self._quoted} < {high}"

    def _ask(self, table: DeltaTable, what: str, condition: str) -> pa.Scalar:
        """One value of the rows for which `condition` holds.

        DataFusion reads the files, with their statistics, in threads of its own. A dataset of pyarrow would
        call deltalake's Python file system from Arrow's threads, and one that still lets go of a file while
        the interpreter ends aborts the process.
        """
        query = f"select {what} as answer from target where {condition}"  # noqa: S608  # quoted
        try:
            answer = pa.table(QueryBuilder().register("target", table).execute(query).read_all())
        except Exception as error:  # whatever its kind: that of a failed query is Exception itself
            raise failed(self._uri, error) from error
        return answer.column("answer")[0]

    def _write(
        self, name: str, range_: TimeRange, since: TargetState, rows: NewRows | None, newest: DeltaTable
    ) -> Exception | None:
        """The failure, after which the table shows whether it was done."""
        schema = pa.schema(newest.schema().to_arrow())
        if rows is not None:
            self._check_fits(rows.schema, newest)
        kind = self._kind(newest)
        base = self._unchanged_until(since.version, newest.version())
        table = newest
        if newest.version() != base:
            with self._reading():
                table = DeltaTable(self._uri, version=base, storage_options=self._options)
        refused: list[UserCodeError] = []
        try:
            write_deltalake(
                table,
                schema.empty_table() if rows is None else self._stored(rows.read(), table, refused),
                mode="overwrite",
                predicate=self._within(range_, kind),
                commit_properties=CommitProperties(
                    custom_metadata={NAME_KEY: name},
                    max_commit_retries=RETRIES_MAX,
                    app_transactions=[Transaction(_app_id(name), WRITTEN_ONCE, None)],
                ),
            )
        except DeltaProtocolError as error:
            raise ConfigError(f"table {self._uri} refuses the commit: {_brief(error)}") from error
        except (DeltaError, OSError) as error:
            if refused:
                raise refused[0] from error
            return error
        return None

    def _stored(
        self, rows: pa.RecordBatchReader, table: DeltaTable, refused: list[UserCodeError]
    ) -> pa.RecordBatchReader:
        """The rows in the columns and types of the table; columns that the rows do not have are null.
        `refused`: gets the failure of a row, of which deltalake keeps no more than the text."""
        schema = pa.schema(table.schema().to_arrow())

        def batches() -> Iterator[pa.RecordBatch]:
            with rows:
                for batch in rows:
                    columns = [_stored_column(batch, field) for field in schema]
                    made = pa.RecordBatch.from_arrays(columns, schema=schema)
                    try:
                        for name in table.metadata().partition_columns:
                            _check_partition(f"table {self._uri}", name, made.column(name))
                    except UserCodeError as error:
                        refused.append(error)
                        raise
                    yield made

        return pa.RecordBatchReader.from_batches(schema, batches())

    def _unchanged_until(self, version: int, newest: int) -> int:
        """The last version with the same rows as `version`, in other files perhaps."""
        log = TableLog(self._uri, table_files(self._uri, self._options or {}))
        while version < newest:
            commit = log.commit(version + 1)
            if commit is None or commit.changes_rows or commit.protocol:
                break
            if commit.metadata is not None and commit.compaction != SEALED:
                break
            version += 1
        return version

    def _check_fits(self, schema: pa.Schema, table: DeltaTable) -> None:
        """Checks that rows of this schema can be stored in the table. Raises ConfigError: they cannot."""
        stored = stored_schema(schema, self._partition_by)
        check_fits(shape_of(self._uri, table), stored, self._partition_by, replaces_rows=True)

    def _open(self) -> DeltaTable:
        with self._reading():
            table = DeltaTable(self._uri, storage_options=self._options)
        self._kind(table)
        schema = pa.schema(table.schema().to_arrow())
        check_rewritable(f"table {self._uri}", schema, table.metadata().partition_columns)
        return table

    def _kind(self, table: DeltaTable) -> pa.TimestampType:
        schema = pa.schema(table.schema().to_arrow())
        if self._column not in schema.names:
            raise ConfigError(
                f"table {self._uri} has no column {self._column!r} with the time of a row; it has "
                f"{', '.join(schema.names)}"
            )
        kind = schema.field(self._column).type
        if not pa.types.is_timestamp(kind):
            raise ConfigError(
                f"table {self._uri}: column {self._column!r} is {kind}; the time of a row has to be a "
                "timestamp"
            )
        return kind

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except TableNotFoundError as error:
            raise ConfigError(f"there is no table at {self._uri}, so there is nothing to replace") from error
        except (DeltaError, OSError) as error:
            raise failed(self._uri, error) from error

    def _found(self, table: DeltaTable, name: str) -> Replacement | None:
        with self._reading():
            if table.transaction_version(_app_id(name)) is None:
                return None
            versions = (
                int(one["version"]) for one in table.history(HISTORY_MAX) if one.get(NAME_KEY) == name
            )
            return Replacement(version=next(versions, None))

    def _sync(self, done: Replacement) -> None:
        """The staged rows are removed after this."""
        if done.version is not None:
            sync_version(self._uri, done.version)


def _app_id(name: str) -> str:
    return f"unistream/backfill/{name}"


def _stored_column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name in batch.schema.names:
        return batch.column(field.name).cast(field.type)
    return pa.nulls(batch.num_rows, field.type)


def _check_partition(where: str, name: str, values: pa.Array) -> None:
    lost = changed_in_partitions(values, rewritten=True)
    if lost is not None:
        text = values.filter(lost)[0].as_py()
        raise UserCodeError(
            f"{where} is partitioned by {name!r}, where {text!r} would come back as null: give such rows "
            "another text, or null"
        )


def _scalar(at_ms: int, kind: pa.TimestampType) -> pa.Scalar:
    return pa.scalar(at_ms * 1_000, pa.timestamp("us", kind.tz))


def _literal(at_ms: int, kind: pa.TimestampType) -> str:
    """A time as a literal in the type of the column: one of DataFusion has nanoseconds, which deltalake
    cannot compare with the statistics of files."""
    zone = 'Some("UTC")' if kind.tz else "None"
    at = _scalar(at_ms, pa.timestamp("us")).as_py().isoformat(timespec="microseconds")
    return f"arrow_cast('{at}{'Z' if kind.tz else ''}', 'Timestamp(Microsecond, {zone})')"


def _changed(failure: Exception) -> str:
    text = str(failure)
    if "concurrent" in text.lower() or "metadata" in text.lower():
        return "somebody else changed rows of the range, or the files that have them,"
    return f"the commit was refused ({_brief(failure)}) after other commits"


def _brief(failure: Exception | None) -> str:
    return "the table does not have it" if failure is None else brief(failure)

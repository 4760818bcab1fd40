"""Where a Delta source begins: the options that master and client share, and the version that they mean."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.base.secrets import Secret
from unistream.connector.common import RowFilter, checked_filter, read_schema, said_time
from unistream.connector.common.columns_by_id import plain_type
from unistream.connector.delta.source_log import TableLog
from unistream.connector.delta.source_table import DeltaSourceTable, TableFacts, no_table, table_log


class DeltaStart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times are in ms since 1970; see `DeltaSource`."""

    bounded: bool
    version: int | None = None
    timestamp_ms: int | None = None
    starting_version: int | Literal["latest"] | None = None
    starting_timestamp_ms: int | None = None


class DeltaSourceOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the master needs to find the splits. `schema`: of the columns that are read, those of the filter
    too, as `TableFacts.stored` has them; Arrow IPC in base64. `filter`: as `plain_filter` gives it.
    `mapping`: see `TableFacts`."""

    table_uri: str
    start: DeltaStart
    schema: str
    filter: list[list[tuple[str, str, Any]]]
    mapping: str = "none"
    ignore_deletes: bool
    ignore_changes: bool
    split_bytes: int
    storage_options: dict[str, str | Secret]

    def read_schema(self) -> pa.Schema:
        return read_schema(self.schema, "a Delta source")

    def row_filter(self) -> RowFilter:
        return checked_filter(self.filter, self.read_schema(), f"table {self.table_uri}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaStartVersions:
    """Where a source begins.

    Attributes:
        columns_of: The version that decides which columns there are: the one that is read, or the newest if
            later ones are read, too.
        snapshot: The version whose files are read first; None: only what is added by `next` and later ones.
        next: The first version whose commit is read after them.
    """

    columns_of: DeltaSourceTable
    snapshot: DeltaSourceTable | None
    next: int


def find_columns(uri: str, storage: Mapping[str, str], start: DeltaStart) -> DeltaSourceTable:
    """See `DeltaStartVersions.columns_of`. Of an unbounded source nothing is asked that a restored job does
    not need.

    Raises:
        ConfigError: no table, or no such version or time.
        Unreachable: the storage failed.
    """
    return find_begin(uri, storage, start).columns_of if start.bounded else _newest(uri, storage, start)


def find_begin(uri: str, storage: Mapping[str, str], start: DeltaStart) -> DeltaStartVersions:
    """Raises ConfigError (no table, no such version or time) or Unreachable."""
    newest = _newest(uri, storage, start)
    log = table_log(uri, storage)
    match start:
        case DeltaStart(starting_version="latest"):
            return DeltaStartVersions(columns_of=newest, snapshot=None, next=newest.version + 1)
        case DeltaStart(starting_version=int(version)):
            return DeltaStartVersions(columns_of=newest, snapshot=None, next=version)
        case DeltaStart(starting_timestamp_ms=int(at_ms)):
            return DeltaStartVersions(
                columns_of=newest, snapshot=None, next=_first_since(uri, newest, log, at_ms)
            )
        case DeltaStart(version=int(version)):
            pass
        case DeltaStart(timestamp_ms=int(at_ms)):
            version = _version_at(uri, newest, log, at_ms)
        case _:
            version = newest.version
    is_newest = version == newest.version
    table = newest if is_newest else DeltaSourceTable.open_version(uri, storage, version)
    return DeltaStartVersions(columns_of=table if start.bounded else newest, snapshot=table, next=version + 1)


def _newest(uri: str, storage: Mapping[str, str], start: DeltaStart) -> DeltaSourceTable:
    newest = DeltaSourceTable.open(uri, storage)
    if newest is None:
        raise no_table(uri)
    for version in (start.version, start.starting_version):
        if isinstance(version, int) and version > newest.version:
            raise ConfigError(f"table {uri} has no version {version}; its newest is {newest.version}")
    return newest


def check_columns(facts: TableFacts, version: int, wanted: pa.Schema, *, all_there: bool = True) -> None:
    """Raises ConfigError unless the rows of this version have the columns that the job was started with.
    `all_there` False: a column may come later."""
    for field in wanted:
        held = facts.held(field)
        if held is None:
            if all_there:
                check_readable(facts, version, field.name)
                raise facts.another(field.name)
            continue
        check_readable(facts, version, held.name)
        kind = plain_type(held.type)
        if not kind.equals(plain_type(field.type)):
            raise ConfigError(
                f"table {facts.table}, version {version}: column {field.name!r} is {kind} now, and was "
                f"{plain_type(field.type)} when the job was built; start the job again"
            )


def check_readable(facts: TableFacts, version: int, column: str) -> None:
    """Raises ConfigError: there is no such column, or it has no form in Arrow."""
    where = f"table {facts.table}, version {version}"
    if column not in facts.schema.names:
        raise ConfigError(f"{where} has no column {column!r}; there are {', '.join(facts.schema.names)}")
    kind = facts.schema.field(column).type
    if column in facts.unreadable:
        raise ConfigError(
            f"{where}: column {column!r} is a variant, which has no form in Arrow; select others by columns=…"
        )
    if column in facts.partition_by and (pa.types.is_binary(kind) or pa.types.is_nested(kind)):
        raise ConfigError(
            f"{where} is partitioned by column {column!r}, which is {kind}; select others by columns=…"
        )


# --- times ----------------------------------------------------------------------------------------


def _version_at(uri: str, newest: DeltaSourceTable, log: TableLog, at_ms: int) -> int:
    """The newest version that was committed by then."""
    times = CommitTimes(newest, log)
    found = times.newest_by(at_ms)
    if found is None:
        raise ConfigError(
            f"table {uri} is not known as of {said_time(at_ms)}: the first version in its log is "
            f"{times.first}"
        )
    return found


def _first_since(uri: str, newest: DeltaSourceTable, log: TableLog, at_ms: int) -> int:
    """The first version that was committed then or later; the next one, if there is none yet."""
    times = CommitTimes(newest, log)
    before = times.newest_by(at_ms - 1)
    if before is not None:
        return before + 1
    if not times.has_all:
        raise ConfigError(
            f"table {uri}: what was committed since {said_time(at_ms)} cannot be read any more: the first "
            f"version in its log is {times.first}, and those before it were cleaned up"
        )
    return 0


class CommitTimes:
    """When the versions in the log were committed, as Delta has it: by the files of the log, always growing;
    or as written in the commits, if the table says so."""

    def __init__(self, newest: DeltaSourceTable, log: TableLog) -> None:
        files = {version: at_ms for version, at_ms in log.times().items() if version <= newest.version}
        self._files = growing_times(files)
        self._versions = list(self._files)
        self._log = log if newest.in_commit_times else None

    def newest_by(self, at_ms: int) -> int | None:
        """The newest version that is not later."""
        after = bisect_right(self._versions, at_ms, key=self._of)
        return self._versions[after - 1] if after else None

    @property
    def first(self) -> str:
        """The first version and its time, for messages."""
        first = self._versions[0] if self._versions else None
        return "not there" if first is None else f"{first} of {said_time(self._of(first))}"

    @property
    def has_all(self) -> bool:
        """Whether the log has all versions: nothing was cleaned up."""
        return self._versions[:1] == [0]

    def _of(self, version: int) -> int:
        commit = None if self._log is None else self._log.commit(version)
        return self._files[version] if commit is None or commit.time_ms is None else commit.time_ms


def growing_times(files: Mapping[int, int]) -> dict[int, int]:
    """The times of the versions, each made later than the one before.

    >>> growing_times({3: 50, 4: 40, 5: 60})
    {3: 50, 4: 51, 5: 60}
    """
    found: dict[int, int] = {}
    last: int | None = None
    for version in sorted(files):
        last = files[version] if last is None else max(files[version], last + 1)
        found[version] = last
    return found


def selected_schema(facts: TableFacts, version: int, columns: Sequence[str] | None) -> pa.Schema:
    """The columns that the rows have, in their order, as `TableFacts.stored` has them. Raises ConfigError."""
    names = facts.schema.names if columns is None else list(columns)
    for name in names:
        check_readable(facts, version, name)
    return pa.schema([facts.stored.field(name) for name in names])

"""Sinks whose results of a range of time can be replaced in one transaction, for `unistream backfill`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from unistream.base.errors import UnistreamError
from unistream.model.time_range import TimeRange


class RangeChanged(UnistreamError):
    """Somebody else changed rows of the range; nothing was replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetState:
    """A version of a table. `id`: of the table, never changed."""

    id: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """The result of `replace`. `version`: of the table, since when it has the rows; None: not known."""

    version: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRows:
    """Rows that take the place of others. `read` may be called again after a failure."""

    schema: pa.Schema
    read: Callable[[], pa.RecordBatchReader]


class RangeTarget(Protocol):
    """A table whose rows carry their time in one column."""

    @property
    def address(self) -> str:
        """URL or absolute path, for messages."""

    @property
    def column(self) -> str: ...

    @property
    def folder(self) -> str:
        """A folder that workers can write to, and readers of the table do not look into."""

    @property
    def filesystem_options(self) -> Mapping[str, Any]:
        """Options of fsspec for `folder`."""

    def look(self) -> TargetState:
        """The newest version.

        Raises:
            ConfigError: there is no table, or it has no such column of a time.
            Unreachable: it could not be read.
        """

    def count(self, range_: TimeRange) -> int:
        """Rows of the range in the newest version. Raises as `look`."""

    def newest_ms(self) -> int | None:
        """The greatest time in the newest version; None: it has no rows. Raises as `look`."""

    def find(self, name: str) -> Replacement | None:
        """The replacement `name`, if the newest version includes it. Raises as `look`."""

    def replace(self, name: str, range_: TimeRange, since: TargetState, rows: NewRows | None) -> Replacement:
        """Removes the rows of the range and adds the new ones, in one transaction; once, however often it is
        called with the same name.

        Args:
            name: Identity of the replacement in the table.
            range_: Of the column.
            since: The version at which nobody else was to change the range any more.
            rows: All of the range; None: there are none.

        Raises:
            RangeChanged: somebody did, so nothing was replaced.
            ConfigError: it is another table, or the rows do not fit it.
            OutcomeUnknown, Unreachable: call it again.
        """


@runtime_checkable
class WithRangeReplacement(Protocol):
    """A `Sink` with such a table."""

    @property
    def time_column(self) -> str | None:
        """The column with the time of a row, if the sink is configured with one."""

    def range_target(self, column: str) -> RangeTarget:
        """`column`: with the time of a row. Contacts no system."""

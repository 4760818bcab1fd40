"""Arguments that sources of tables share: which columns, at what time, and one place to begin."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.connector.common.row_filter import Condition
from unistream.model.time_range import TimeRange

At: TypeAlias = str | dt.datetime
"""ISO-8601 text or a datetime; without a zone it is in UTC."""

EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def checked_columns(source: str, columns: Sequence[str]) -> list[str]:
    """The names of the columns as a list. Raises ConfigError: there is none, or one is named twice."""
    names = [columns] if isinstance(columns, str) else list(columns)
    if not names or len(set(names)) != len(names):
        raise ConfigError(f"columns of {source} must be at least one, each once, not {names!r}")
    return names


def check_one_begin(source: str, begins: Mapping[str, object]) -> None:
    """Raises ConfigError: several are given."""
    given = [name for name, value in begins.items() if value is not None]
    if len(given) > 1:
        raise ConfigError(f"{source} begins at one place, not at {' and '.join(given)}")


def check_unbounded(later: str, bounded: bool, given: Mapping[str, object]) -> None:
    """Raises ConfigError: some are given, and the source is bounded. `later`: what it reads otherwise."""
    named = [name for name, value in given.items() if value is not None and value is not False]
    if bounded and named:
        raise ConfigError(
            f"{', '.join(named)}: only for a source with bounded=False, which reads later {later} too"
        )


def time_ms(name: str, at: At | None) -> int | None:
    """The time in ms since 1970; None: none was given. Raises ConfigError: it is no time."""
    if at is None:
        return None
    try:
        when = dt.datetime.fromisoformat(at) if isinstance(at, str) else at
        utc = when.astimezone(dt.UTC) if when.tzinfo else when.replace(tzinfo=dt.UTC)
    except (ValueError, AttributeError) as error:
        raise ConfigError(
            f'{name} must be a time such as "2026-01-01T00:00:00Z", or a datetime, not {at!r}'
        ) from error
    return (utc - EPOCH) // dt.timedelta(milliseconds=1)


def said_time(at_ms: int) -> str:
    """The text of a time in ms, for messages.

    >>> said_time(0)
    '1970-01-01T00:00:00.000+00:00'
    """
    return (EPOCH + dt.timedelta(milliseconds=at_ms)).isoformat(timespec="milliseconds")


def conditions_of_range(column: str, kind: pa.DataType, range_: TimeRange) -> list[Condition]:
    """The conditions of a filter that selects the times of a range, in a column of timestamps."""
    times = [EPOCH + dt.timedelta(milliseconds=at) for at in (range_.begin_ms, range_.end_ms)]
    low, high = times if kind.tz else [at.replace(tzinfo=None) for at in times]
    return [(column, ">=", low), (column, "<", high)]


# --- schemas in a job's options -------------------------------------------------------------------


def written_schema(schema: pa.Schema) -> str:
    """The schema as Arrow IPC in base64, for a job's options."""
    return base64.b64encode(schema.serialize()).decode()


def read_schema(written: str, source: str) -> pa.Schema:
    """Reads what `written_schema` has written. Raises ConfigError: it is unreadable."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(written)))
    except (ValueError, OSError) as error:
        raise ConfigError(f"options of {source}: its schema is unreadable: {error}") from error

"""Whether a history has the events of a range: the least and the greatest of its event times.

By the statistics of the source (`WithEventTimeSpan`), or by reading all of it here, a batch at a time.
"""

from __future__ import annotations

import threading
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import ConfigError
from unistream.connector.catalogue import create_discovery
from unistream.model.columns.event_time import event_times
from unistream.model.time_range import TimeRange, time_text
from unistream.port.metrics import Uncounted
from unistream.port.source import (
    Exhausted,
    Idle,
    ReaderContext,
    Rows,
    Source,
    SplitFinished,
    WithEventTimeSpan,
)

IDLE_MS: Final = 10
_COMPLETE: Final = "if it has all events of the range nevertheless, say so: --history-complete"


def event_time_span(source: Source, column: str) -> tuple[int, int] | None:
    """The least and the greatest event time (ms); None: it has no rows.

    Raises:
        ConfigError, Unreachable: it cannot be read.
    """
    if isinstance(source, WithEventTimeSpan):
        found = source.event_time_span(column)
        if found is not None:
            return found
    return read_span(source, column)


def check_covers(label: str, span: tuple[int, int] | None, range_: TimeRange) -> None:
    """Raises ConfigError unless the history begins at or before the range and goes on behind it."""
    if span is None:
        raise ConfigError(f"the history of {label} has no rows")
    least, greatest = span
    if least > range_.begin_ms:
        raise ConfigError(
            f"the history of {label} begins at {time_text(least)}, after --from "
            f"{time_text(range_.begin_ms)}; {_COMPLETE}"
        )
    if greatest < range_.end_ms:
        raise ConfigError(
            f"the history of {label} ends at {time_text(greatest)}, before --to {time_text(range_.end_ms)}; "
            f"{_COMPLETE}"
        )


def read_span(source: Source, column: str) -> tuple[int, int] | None:
    """Reads everything, with one reader on this thread."""
    discovery = create_discovery(source.info())
    try:
        splits = list(discovery.discover())
    finally:
        discovery.close()
    ready = threading.Event()
    reader = source.create_reader()
    least: int | None = None
    greatest: int | None = None
    try:
        reader.open(_context(ready))
        reader.add_splits(splits)
        reader.no_more_splits()
        while True:
            match reader.poll():
                case Rows(records=records) if records.num_rows:
                    low, high = _bounds(records, column)
                    least = low if least is None else min(least, low)
                    greatest = high if greatest is None else max(greatest, high)
                case Rows() | SplitFinished():
                    continue
                case Idle(retry_ms=retry_ms):
                    ready.wait((IDLE_MS if retry_ms is None else min(retry_ms, IDLE_MS)) / 1000)
                    ready.clear()
                case Exhausted():
                    break
    finally:
        reader.close()
    return None if least is None or greatest is None else (least, greatest)


def _bounds(records: pa.RecordBatch, column: str) -> tuple[int, int]:
    values = records.column(column)
    if values.null_count:
        raise ConfigError(f"column {column!r} of the history, with the event times, is null in some rows")
    found = pc.min_max(event_times(values)).as_py()
    return found["min"], found["max"]


def _context(ready: threading.Event) -> ReaderContext:
    return ReaderContext(
        index=0, parallelism=1, wake=ready.set, request_split=lambda: None, metrics=Uncounted()
    )

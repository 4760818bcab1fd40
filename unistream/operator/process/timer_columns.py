"""Timers of many keys at once: columns of times and keys, and no Python object for any of them.

    register, delete    append rows to a log: time, key, which of the two. Nothing is looked up
    due(now)            of all log rows for one (time, key) up to `now`, the newest counts
    a long log          is merged with the settled timers: each once, in the order of times

Rows in the log and settled rows are immutable, so that a snapshot is a list of references, whose rows are
built in the background.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unistream.model.columns.key_codes import key_codes

LOG_ROWS_MIN: Final = 16_384  # below it, settling costs more than it saves
LOG_PIECES_MAX: Final = 256  # the earliest time of each piece is read at every watermark

Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _TimerRows:
    """Rows of the log, or settled timers.

    Attributes:
        numbers: Increasing numbers of the calls.
        puts: True: register; False: delete.
        settled: All are registered timers, each (time, key) once, in the order of times.
    """

    times: Times
    keys: pa.RecordBatch
    numbers: npt.NDArray[np.int64]
    puts: npt.NDArray[np.bool_]
    settled: bool = False

    def __len__(self) -> int:
        return len(self.times)

    def cut(self, start: int, stop: int) -> _TimerRows:
        keys = self.keys.slice(start, stop - start)
        rows = slice(start, stop)
        return _TimerRows(self.times[rows], keys, self.numbers[rows], self.puts[rows], self.settled)

    def take(self, places: npt.NDArray[np.int64]) -> _TimerRows:
        keys = self.keys.take(pa.array(places))
        return _TimerRows(self.times[places], keys, self.numbers[places], self.puts[places])


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of the log, and its bounds."""

    rows: _TimerRows
    first: int
    last: int

    @classmethod
    def of(cls, rows: _TimerRows) -> _Piece:
        return cls(rows, int(rows.times.min()), int(rows.times.max()))


class TimerColumns:
    """A set of (time, key). Keys are rows of key columns, in canonical form and always of the same types.

    >>> timers = TimerColumns()
    >>> timers.register(np.array([30, 10]), pa.record_batch({"k": ["a", "b"]}))
    >>> [(times.tolist(), keys.to_pydict()) for times, keys in timers.due(20, 100)]
    [([10], {'k': ['b']})]
    """

    def __init__(self) -> None:
        self._settled: _TimerRows | None = None
        self._fired = 0  # the number of fired timers in `_settled`
        self._log: list[_Piece] = []
        self._log_rows = 0
        self._count = 0

    def register(self, times: Times, keys: pa.RecordBatch) -> None:
        """Adds a timer for each row, unless it exists."""
        self._append(times, keys, put=True)

    def delete(self, times: Times, keys: pa.RecordBatch) -> None:
        """Removes the timer of each row, if it exists."""
        self._append(times, keys, put=False)

    def earliest(self) -> int | None:
        """A time, ms, before which no timer is due; None: there are no timers. May be that of a deleted
        timer."""
        found = [piece.first for piece in self._log]
        if self._settled is not None and self._fired < len(self._settled):
            found.append(int(self._settled.times[self._fired]))
        return min(found, default=None)

    def due(self, now: int, rows_max: int) -> Iterator[tuple[Times, pa.RecordBatch]]:
        """Removes and yields timers that are due at `now`, also those that are registered meanwhile: at most
        `rows_max` at once, in the order of times and then of registration. The caller must exhaust it."""
        ready: _TimerRows | None = None
        while True:
            parts = self._pull(now)
            if parts:
                ready = _settle(parts if ready is None else [ready, *parts])
            if ready is None or not len(ready):
                return
            piece, ready = ready.cut(0, rows_max), ready.cut(min(rows_max, len(ready)), len(ready))
            yield piece.times, piece.keys

    def all(self) -> TimersNow:
        """The current timers, to be read later and by any thread."""
        return TimersNow(tuple(self._parts()))

    def _parts(self) -> list[_TimerRows]:
        parts = [piece.rows for piece in self._log]
        if self._settled is not None and self._fired < len(self._settled):
            parts.insert(0, self._settled.cut(self._fired, len(self._settled)))
        return parts

    def _append(self, times: Times, keys: pa.RecordBatch, *, put: bool) -> None:
        count = len(times)
        assert count == keys.num_rows, (count, keys.num_rows)
        if not count:
            return
        numbers = np.arange(self._count, self._count + count, dtype=np.int64)
        self._count += count
        self._log.append(_Piece.of(_TimerRows(times, keys, numbers, np.full(count, put))))
        self._log_rows += count
        live = 0 if self._settled is None else len(self._settled) - self._fired
        if self._log_rows > max(LOG_ROWS_MIN, live):
            self._settled, self._fired = _settle(self._parts()), 0
            self._log, self._log_rows = [], 0
        elif len(self._log) > LOG_PIECES_MAX:
            self._log = [_Piece.of(_together([piece.rows for piece in self._log]))]

    def _pull(self, now: int) -> list[_TimerRows]:
        """Removes and returns all rows with times up to `now`."""
        found = []
        if self._settled is not None and self._fired < len(self._settled):
            stop = int(np.searchsorted(self._settled.times, now, side="right"))
            if stop > self._fired:
                found.append(self._settled.cut(self._fired, stop))
                self._fired = stop
            if self._fired == len(self._settled):
                self._settled, self._fired = None, 0
        if not any(piece.first <= now for piece in self._log):
            return found
        left = []
        for piece in self._log:
            if piece.first > now:
                left.append(piece)
            elif piece.last <= now:
                found.append(piece.rows)
            else:
                due = piece.rows.times <= now
                found.append(piece.rows.take(np.flatnonzero(due)))
                left.append(_Piece.of(piece.rows.take(np.flatnonzero(~due))))
        self._log, self._log_rows = left, sum(len(piece.rows) for piece in left)
        return found


@dataclass(frozen=True, slots=True)
class TimersNow:
    """A snapshot of timers."""

    _parts: tuple[_TimerRows, ...]

    @property
    def is_empty(self) -> bool:
        """True: there are no timers. False: there may be none, if all were deleted."""
        return not self._parts

    def read(self) -> tuple[Times, pa.RecordBatch]:
        """Times and keys, in the order of times; not if `is_empty`."""
        rows = _settle(self._parts)
        return rows.times, rows.keys


def _settle(parts: Sequence[_TimerRows]) -> _TimerRows:
    """The timers that result from all rows. A timer has the number of its first registration after its last
    deletion."""
    if len(parts) == 1 and parts[0].settled:
        return parts[0]
    rows = _together(parts)
    which = key_codes([pa.array(rows.times), *rows.keys.columns])
    count = len(rows)
    alive = rows.puts
    if not alive.all():
        deleted = np.full(count, -1, np.int64)
        np.maximum.at(deleted, which[~alive], rows.numbers[~alive])
        alive = alive & (rows.numbers > deleted[which])
    first = np.full(count, np.iinfo(np.int64).max, np.int64)
    np.minimum.at(first, which[alive], rows.numbers[alive])
    places = np.flatnonzero(alive & (rows.numbers == first[which]))
    order = places[np.lexsort((rows.numbers[places], rows.times[places]))]
    kept = rows.take(order)
    return _TimerRows(kept.times, kept.keys, kept.numbers, kept.puts, settled=True)


def _together(parts: Sequence[_TimerRows]) -> _TimerRows:
    if len(parts) == 1:
        return parts[0]
    return _TimerRows(
        np.concatenate([part.times for part in parts]),
        pa.concat_batches([part.keys for part in parts]),
        np.concatenate([part.numbers for part in parts]),
        np.concatenate([part.puts for part in parts]),
    )

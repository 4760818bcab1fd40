"""Timers by key, and timers in a snapshot: a table for each of the two clocks, for all forms of functions.

KEY_GROUP_COLUMN, key columns…, TIMESTAMP_COLUMN: int64, ms
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.model.key_groups import key_groups
from unistream.model.keyed_snapshot import StateKind, StateTable
from unistream.model.snapshot import KEY_GROUP_COLUMN
from unistream.operator.process.timer_columns import TimerColumns
from unistream.port.state import KeyedStateBackend

EVENT_TIMERS: Final = "__event_timers"
PROCESSING_TIMERS: Final = "__processing_timers"
TIMESTAMP_COLUMN: Final = "__timestamp"
_PIECE_ROWS: Final = 65_536  # between two pieces other Python threads run

Piece = tuple[pa.Array, pa.RecordBatch]
"""Times and keys."""


class KeyedTimers:
    """A set of (time, key), in the order of times and registration. Keys are those of a backend
    (`keys_of`)."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Any]] = []
        self._live: dict[tuple[int, Any], int] = {}
        self._count = 0

    def register(self, timestamp: int, key: Any) -> None:
        if (timestamp, key) not in self._live:
            self._count += 1
            self._live[timestamp, key] = self._count
            heapq.heappush(self._heap, (timestamp, self._count, key))

    def delete(self, timestamp: int, key: Any) -> None:
        self._live.pop((timestamp, key), None)  # `earliest` drops its heap entry

    def earliest(self) -> int | None:
        """The time of the next timer, ms."""
        while self._heap and self._live.get((self._heap[0][0], self._heap[0][2])) != self._heap[0][1]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now: int) -> Iterator[tuple[int, Any]]:
        """Removes and yields timers that are due at `now`, also those that are registered meanwhile."""
        while (earliest := self.earliest()) is not None and earliest <= now:
            timestamp, _, key = heapq.heappop(self._heap)
            del self._live[timestamp, key]
            yield timestamp, key

    def all(self) -> tuple[list[int], list[Any]]:
        """Times and keys of all timers."""
        pairs = list(self._live)
        return [timestamp for timestamp, _ in pairs], [key for _, key in pairs]

    def restore(self, timestamps: Iterable[int], keys: Iterable[Any]) -> None:
        for timestamp, key in zip(timestamps, keys, strict=True):
            self.register(timestamp, key)


def keyed_pieces(
    timers: KeyedTimers, backend: KeyedStateBackend, key_schema: pa.Schema
) -> Iterator[Piece] | None:
    """The current timers; their rows are built when they are read, in the background. None: there are
    none."""
    times, keys = timers.all()

    def pieces() -> Iterator[Piece]:
        for start in range(0, len(keys), _PIECE_ROWS):
            stop = start + _PIECE_ROWS
            columns = zip(*map(backend.values_of, keys[start:stop]), strict=True)
            arrays = [pa.array(values, f.type) for values, f in zip(columns, key_schema, strict=True)]
            records = pa.RecordBatch.from_arrays(arrays, schema=key_schema)
            yield pa.array(times[start:stop], pa.int64()), records

    return pieces() if keys else None


def column_pieces(timers: TimerColumns) -> Iterator[Piece] | None:
    """The current timers, which are in columns, in pieces as `keyed_pieces` makes them. Without timers there
    may be pieces without rows."""
    now = timers.all()

    def pieces() -> Iterator[Piece]:
        times, keys = now.read()
        for start in range(0, len(times), _PIECE_ROWS):
            yield pa.array(times[start : start + _PIECE_ROWS]), keys.slice(start, _PIECE_ROWS)

    return None if now.is_empty else pieces()


def stored_timers(tables: Iterable[pa.Table], keys: Sequence[str]) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """Times and keys of stored timers. Raises ConfigError if they belong to other key columns than `keys`."""
    for table in tables:
        for batch in table.to_batches():
            columns = [c for c in batch.schema.names if c not in (KEY_GROUP_COLUMN, TIMESTAMP_COLUMN)]
            if columns != list(keys):
                raise ConfigError(
                    f"timers were stored by ({', '.join(columns)}), and the key is now "
                    f"({', '.join(keys)}); give the operator another uid"
                )
            yield batch.column(TIMESTAMP_COLUMN), batch.select(columns)


def timer_table(
    name: str, key_schema: pa.Schema, max_parallelism: int, pieces: Iterable[Piece]
) -> StateTable:
    """The table `name` of a snapshot."""
    schema = pa.schema(
        [pa.field(KEY_GROUP_COLUMN, pa.uint16()), *key_schema, pa.field(TIMESTAMP_COLUMN, pa.int64())]
    )

    def batches() -> Iterator[pa.RecordBatch]:
        made = []
        for times, keys in pieces:
            groups = key_groups(keys, key_schema.names, max_parallelism).astype(np.uint16)
            arrays = [pa.array(groups), *keys.columns, times]
            made.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        table = pa.Table.from_batches(made, schema)
        order = np.argsort(table.column(0).to_numpy(), kind="stable")
        for start in range(0, len(order), _PIECE_ROWS):
            piece = table.take(pa.array(order[start : start + _PIECE_ROWS])).combine_chunks()
            yield from piece.to_batches()

    return StateTable(name=name, kind=StateKind.TIMERS, pickled=False, schema=schema, batches=batches())

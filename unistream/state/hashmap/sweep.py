"""Removes expired rows that are never touched again: snapshots find them, steps remove them bit by bit.

    expired_keys()   in the background: keys with expired values in a snapshot's copy
    report(keys)     by any thread; of waiting reports only the newest counts: it includes the older ones
    step(rows)       by the task's thread, for every batch and every completed checkpoint: visits some keys of
                     a report, and removes the values that have expired by now

Values that were renewed after the snapshot stay. Copies that snapshots still read do not change: a row is
removed from the live dict only, and a list or map is copied before it is changed
(`CopyOnWriteStateMap.owned`).

A step visits STEP_CELLS_MIN values, elements and entries, or twice as many as the batch has rows, or a 64th
of the keys of the report, whichever is most (docs/decision/time-to-live.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from unistream.base.clock import Clock
from unistream.model.columns.arrow_layouts import filtered
from unistream.model.keyed_snapshot import StateKind
from unistream.model.state import EXPIRES_COLUMN, VALUE_COLUMN
from unistream.state.hashmap.rows import CopyOnWriteStateMap

STEP_CELLS_MIN: Final = 4_096  # about a millisecond
REPORT_STEPS: Final = 64  # a report of a million keys takes a few ms of each


class RowSweep:
    """Removes expired values of one state."""

    def __init__(self, rows: CopyOnWriteStateMap, kind: StateKind, clock: Clock) -> None:
        self._rows = rows
        self._visit = _VISITS.get(kind, _visit_cell)
        self._clock = clock
        self._reports: deque[list[Any]] = deque(maxlen=1)
        self._keys: list[Any] = []
        self._share = 0

    def report(self, keys: list[Any]) -> None:
        """Keys, from `expired_keys`, to visit; takes ownership of the list."""
        if keys:
            self._reports.append(keys)

    def step(self, batch_rows: int = 0) -> None:
        """Visits some keys, after a batch of so many rows."""
        keys = self._keys
        if not keys:
            if not self._reports:
                return
            keys = self._keys = self._reports.pop()
            self._share = -(-len(keys) // REPORT_STEPS)
        now_ms, visit, rows = self._clock.wall_ms(), self._visit, self._rows
        left, wanted = len(keys) - self._share, max(STEP_CELLS_MIN, 2 * batch_rows)
        seen = 0
        while keys and (seen < wanted or len(keys) > left):
            seen += visit(rows, keys.pop(), now_ms)


def expired_keys(kind: StateKind, rows: Mapping[Any, Any], now_ms: int) -> list[Any]:
    """Keys with an expired value."""
    if kind is StateKind.LIST:
        return [key for key, cells in rows.items() if any(at <= now_ms for _, at in cells)]
    if kind is StateKind.MAP:
        return [key for key, found in rows.items() if any(at <= now_ms for _, at in found.values())]
    return [key for key, (_, at) in rows.items() if at <= now_ms]


def _visit_cell(state: CopyOnWriteStateMap, key: Any, now_ms: int) -> int:
    cell = state.rows.get(key)
    if cell is not None and cell[1] <= now_ms:
        del state.rows[key]
    return 1


def _visit_list(state: CopyOnWriteStateMap, key: Any, now_ms: int) -> int:
    cells = state.rows.get(key)
    if cells is None:
        return 1
    live = sum(at > now_ms for _, at in cells)
    if not live:
        del state.rows[key]
    elif live < len(cells):
        state.rows[key] = [cell for cell in state.owned(key) if cell[1] > now_ms]
    return len(cells)


def _visit_map(state: CopyOnWriteStateMap, key: Any, now_ms: int) -> int:
    found = state.rows.get(key)
    if found is None:
        return 1
    expired = [own for own, (_, at) in found.items() if at <= now_ms]
    if len(expired) == len(found):
        del state.rows[key]
    elif expired:
        changed = state.owned(key)
        for own in expired:
            del changed[own]
    return len(found)


_VISITS: Final[Mapping[StateKind, Callable[[CopyOnWriteStateMap, Any, int], int]]] = {
    StateKind.LIST: _visit_list,
    StateKind.MAP: _visit_map,
}


def live_batch(batch: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
    """A stored batch without expired values: the same batch if there are none."""
    place = batch.schema.get_field_index(EXPIRES_COLUMN)
    if place < 0:
        return batch
    times = batch.column(place)
    if not pa.types.is_list(times.type):
        live = times.to_numpy() > now_ms
        return batch if live.all() else filtered(batch, live)
    flat = times.flatten().to_numpy()
    live = flat > now_ms
    if live.all():
        return batch
    lengths = times.value_lengths().to_numpy()
    ends = np.concatenate(([0], np.cumsum(live)))[np.concatenate(([0], np.cumsum(lengths)))]
    offsets = pa.array(ends, pa.int32())
    for name in (VALUE_COLUMN, EXPIRES_COLUMN):
        at = batch.schema.get_field_index(name)
        field = batch.schema.field(at)
        kept = filtered(batch.column(at).flatten(), live)
        shorter = pa.ListArray.from_arrays(offsets, kept, type=field.type)
        batch = batch.set_column(at, field, shorter)
    return filtered(batch, np.diff(ends) > 0)

"""The times until which overlapping windows have fired, by key group.

Windows that overlap share panes, so a window that has fired would fire again after a restore for the panes
that it shares with later ones. What has fired follows from the watermark of the subtask, and only at an
aligned barrier is that the same in all of them: an unaligned one, or one of AT_LEAST_ONCE, finds each where
it is. So it is stored for each key group, and moves with the panes of its keys. After a restore a subtask may
have key groups with different times, until its own watermark has passed the highest of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unistream.base.errors import UNDECODABLE, CorruptSnapshot
from unistream.base.limits import MIN_WATERMARK
from unistream.model.key_groups import key_groups
from unistream.model.own_state import OwnTable
from unistream.model.snapshot import KEY_GROUP_COLUMN, OperatorState
from unistream.operator.window.windows import Ends

FIRED: Final = "fired-until"
FIRED_COLUMN: Final = "fired_until"
FIRED_TABLE: Final = OwnTable(keys=(), columns=(FIRED_COLUMN,), types=pa.schema([(FIRED_COLUMN, pa.int64())]))


class FiredUntil:
    """What had fired before a subtask was restored: windows of a key group with end - 1 <= its time.

    Args:
        keys: The key columns.
        groups: (first, last) key group of the subtask.

    Attributes:
        lowest, highest: Of the times of its key groups; MIN_WATERMARK: nothing has fired.
    """

    def __init__(self, keys: Sequence[str], groups: tuple[int, int], max_parallelism: int) -> None:
        self._keys = list(keys)
        self._first, self._last = groups
        self._max_parallelism = max_parallelism
        self._until = np.full(self._last - self._first + 1, MIN_WATERMARK, dtype=np.int64)
        self.lowest = self.highest = MIN_WATERMARK

    def restore(self, state: OperatorState) -> None:
        """Snapshots of older versions have a list with one time, that of one of the former subtasks.

        Raises:
            CorruptSnapshot: that time cannot be read.
        """
        for item in state.lists.get(FIRED, []):
            np.maximum(self._until, _decoded(item), out=self._until)
        for table in state.keyed.get(FIRED, []):
            np.maximum.at(self._until, self._own(table), table.column(FIRED_COLUMN).to_numpy())
        self._bound()

    def has_unfired(self, rows: pa.Table, end: int) -> None:
        """The window that ends at `end` has not fired for `rows`, whatever the time of another subtask is."""
        own = np.unique(self._own(rows))
        self._until[own] = np.minimum(self._until[own], end - 2)
        self._bound()

    def of(self, rows: pa.RecordBatch | pa.Table) -> Ends:
        """The time of the key group of each row."""
        groups = key_groups_of(rows, self._keys, self._max_parallelism)
        times: Ends = self._until[groups.astype(np.int64) - self._first]
        return times

    def stored(self, watermark: int) -> pa.Table | None:
        """The times, where windows until `watermark` have fired since; None: none has."""
        until = np.maximum(self._until, watermark)
        known = np.flatnonzero(until > MIN_WATERMARK)
        if not len(known):
            return None
        groups = pa.array((known + self._first).astype(np.uint16))
        return pa.table({KEY_GROUP_COLUMN: groups, FIRED_COLUMN: pa.array(until[known])})

    def _own(self, table: pa.Table) -> npt.NDArray[np.int64]:
        groups: npt.NDArray[np.int64] = table.column(KEY_GROUP_COLUMN).to_numpy().astype(np.int64)
        return groups - self._first

    def _bound(self) -> None:
        self.lowest, self.highest = int(self._until.min()), int(self._until.max())


def key_groups_of(
    rows: pa.RecordBatch | pa.Table, keys: Sequence[str], max_parallelism: int
) -> npt.NDArray[np.uint16]:
    """The key group of each row."""
    columns = rows.select(list(keys))
    batches = columns.combine_chunks().to_batches() if isinstance(columns, pa.Table) else [columns]
    groups = [key_groups(batch, list(keys), max_parallelism) for batch in batches]
    return np.concatenate(groups).astype(np.uint16) if groups else np.zeros(0, dtype=np.uint16)


def _decoded(item: bytes) -> int:
    try:
        return msgspec.msgpack.decode(item, type=int)
    except UNDECODABLE as error:
        raise CorruptSnapshot(f"state {FIRED!r} cannot be read: {error}") from error

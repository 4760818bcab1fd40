"""A slot number for each key, looked up for many keys at once.

    short keys    one column of integers, times, or texts of up to 15 bytes: packed exactly into 16 bytes and
                  looked up in an open-addressing table of numpy arrays
    other keys    in a dict, one by one

The table uses linear probing at a load of at most one half; all keys of a batch probe in the same step. (A
dict takes several times as long: each lookup waits for memory.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from unistream.state.common.migration import time_storage

TEXT_BYTES_MAX: Final = 15  # the 16th holds the length
TABLE_SIZE_MIN: Final = 2048
_NULL: Final = np.uint64(0xFF << 56)

Slots = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


class Codes:
    """Keys packed into two words each; `coded` is false for keys that do not fit."""

    __slots__ = ("coded", "high", "low")

    def __init__(self, low: Words, high: Words, coded: npt.NDArray[np.bool_]) -> None:
        self.low = low
        self.high = high
        self.coded = coded


def pack(column: pa.Array) -> Codes | None:
    """The keys of one column; None if keys of its type are not packed.

    >>> codes = pack(pa.array(["a", "ab", None, "a text too long"]))
    >>> codes.coded.tolist(), len(set(zip(codes.low.tolist(), codes.high.tolist())))
    ([True, True, True, True], 4)
    """
    kind, times = column.type, time_storage(column.type)
    if times is not None:
        column = column.view(times)
    elif not pa.types.is_integer(kind):
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        return _pack_text(column) if is_text else None
    missing = _missing(column)
    numbers = column if missing is None else column.fill_null(0)
    low = numbers.to_numpy(zero_copy_only=False)
    low = low.astype(np.uint64 if low.dtype == np.uint64 else np.int64).view(np.uint64)
    high = np.zeros(len(column), np.uint64)
    if missing is not None:
        high[missing] = _NULL
    return Codes(low, high, np.ones(len(column), np.bool_))


def _pack_text(column: pa.Array) -> Codes:
    missing = _missing(column)
    if missing is not None:
        column = column.fill_null("")
    lengths = pc.binary_length(column).to_numpy(zero_copy_only=False)
    coded = lengths <= TEXT_BYTES_MAX
    if not coded.all():
        column = pc.if_else(pa.array(coded), column, "")
        lengths = np.where(coded, lengths, 0)
    padding = _paddings().take(pa.array(lengths.astype(np.int32)))
    content = column.cast(pa.large_binary())
    padded = pc.binary_join_element_wise(content, padding, pa.scalar(b"", pa.large_binary()))
    size = len(column) * (TEXT_BYTES_MAX + 1)
    data = np.frombuffer(padded.buffers()[2], np.uint8, size) if size else np.zeros(0, np.uint8)
    packed = data.reshape(len(column), TEXT_BYTES_MAX + 1).copy()
    packed[:, TEXT_BYTES_MAX] = lengths
    words = packed.view(np.uint64)
    low, high = words[:, 0].copy(), words[:, 1].copy()
    if missing is not None:
        low[missing], high[missing] = 0, _NULL
    return Codes(low, high, coded)


@cache
def _paddings() -> pa.Array:
    """The paddings by length of the text. Made at first use: the first array of a process loads pandas, if
    installed."""
    return pa.array([b"\0" * (TEXT_BYTES_MAX + 1 - n) for n in range(TEXT_BYTES_MAX + 1)], pa.large_binary())


def _missing(column: pa.Array) -> npt.NDArray[np.bool_] | None:
    if column.null_count == 0:
        return None
    found: npt.NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return found


class SlotKeys(list[Any]):
    """Keys of a batch that remember their codes and their slots (-1: none yet)."""

    __slots__ = ("codes", "seen", "slots")

    def __init__(self, keys: Iterable[Any], column: pa.Array | None = None) -> None:
        super().__init__(keys)
        self.codes: pa.Array | Codes | None = column  # packed when it is first needed
        self.slots: Slots | None = None
        self.seen = (-1, 0)  # generation and size of the index when the slots were looked up


class SlotIndex:
    """Key -> slot. `keys[slot]` is the key; the list only grows until it is replaced by another one.

    Args:
        column_of: The column of some keys, if they are of one that can be packed.
    """

    def __init__(self, column_of: Callable[[Sequence[Any]], pa.Array | None]) -> None:
        self.keys: list[Any] = []
        self.generation = 0
        self._column_of = column_of
        self._long: dict[Any, int] = {}
        self._low = np.zeros(TABLE_SIZE_MIN, np.uint64)  # by slot, as `_high` and `_coded`
        self._high = np.zeros(TABLE_SIZE_MIN, np.uint64)
        self._coded = np.zeros(TABLE_SIZE_MIN, np.bool_)
        self._table = np.full(TABLE_SIZE_MIN, -1, np.int64)

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, keys: Sequence[Any]) -> Slots:
        """The slot of each key, -1 where it has none."""
        now = (self.generation, len(self.keys))
        if isinstance(keys, SlotKeys) and keys.slots is not None and keys.seen[0] == now[0]:
            missing = keys.seen != now and (keys.slots < 0).any()
            if not missing:
                return keys.slots
        codes = self._codes(keys)
        found = np.full(len(keys), -1, np.int64)
        if codes is not None:
            self._probe(codes, np.flatnonzero(codes.coded), found)
        get = self._long.get
        for place in self._others(codes, keys):
            found[place] = get(keys[place], -1)
        if isinstance(keys, SlotKeys):
            keys.slots, keys.seen = found, now
        return found

    def make(self, keys: Sequence[Any]) -> Slots:
        """The slot of each key; a new one where it has none."""
        found = self.find(keys)
        new = found < 0
        if not new.any():
            return found
        codes = self._codes(keys)
        if codes is not None:
            places = np.flatnonzero(new & codes.coded)
            if len(places):
                found[places] = self._add(codes, places, keys)
        for place in self._others(codes, keys):
            if found[place] < 0:
                found[place] = self._add_long(keys[place])
        return found

    def keep(self, kept: npt.NDArray[np.bool_]) -> None:
        """Keeps the slots where `kept` is true, with new numbers."""
        rows = np.flatnonzero(kept)
        self.keys = [self.keys[row] for row in rows.tolist()]
        self._low, self._high, self._coded = self._low[rows], self._high[rows], self._coded[rows]
        self._long = {self.keys[slot]: slot for slot in np.flatnonzero(~self._coded).tolist()}
        self.generation += 1
        self._rebuild(len(rows))

    def _codes(self, keys: Sequence[Any]) -> Codes | None:
        if not isinstance(keys, SlotKeys):
            column = self._column_of(keys)
            return None if column is None else pack(column)
        if keys.codes is not None and not isinstance(keys.codes, Codes):
            keys.codes = pack(keys.codes)
        return keys.codes

    def _others(self, codes: Codes | None, keys: Sequence[Any]) -> Iterable[int]:
        return range(len(keys)) if codes is None else np.flatnonzero(~codes.coded).tolist()

    def _probe(self, codes: Codes, places: npt.NDArray[np.int64], found: Slots) -> None:
        """Fills in the slots of the keys at `places`."""
        low, high = codes.low[places], codes.high[places]
        at = self._home(low, high)
        mask = len(self._table) - 1
        while len(places):
            slots = self._table[at]
            there = slots >= 0
            same = there & (self._low[slots] == low) & (self._high[slots] == high)
            found[places[same]] = slots[same]
            on = np.flatnonzero(there & ~same)
            places, low, high = places[on], low[on], high[on]
            at = (at[on] + 1) & mask

    def _add(self, codes: Codes, places: npt.NDArray[np.int64], keys: Sequence[Any]) -> Slots:
        """New slots for the keys at `places`; equal keys get the same."""
        words = np.stack((codes.low[places], codes.high[places]), axis=1)
        _, first, which = np.unique(words, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(first, kind="stable")
        rank = np.empty(len(first), np.int64)
        rank[order] = np.arange(len(first))
        firsts = places[first[order]]
        start = len(self.keys)
        self.keys.extend([keys[place] for place in firsts.tolist()])
        self._reach(len(self.keys))
        stop = len(self.keys)
        self._low[start:stop], self._high[start:stop] = codes.low[firsts], codes.high[firsts]
        self._coded[start:stop] = True
        if stop * 2 > len(self._table):
            self._rebuild(stop)
        else:
            self._place(np.arange(start, stop))
        slots: Slots = start + rank[which.reshape(-1)]
        return slots

    def _add_long(self, key: Any) -> int:
        slot = self._long.get(key)
        if slot is None:
            slot = self._long[key] = len(self.keys)
            self.keys.append(key)
            self._reach(len(self.keys))
        return slot

    def _reach(self, count: int) -> None:
        if count > len(self._low):
            more = count + count // 2 - len(self._low)
            self._low = np.concatenate((self._low, np.zeros(more, np.uint64)))
            self._high = np.concatenate((self._high, np.zeros(more, np.uint64)))
            self._coded = np.concatenate((self._coded, np.zeros(more, np.bool_)))

    def _rebuild(self, count: int) -> None:
        """A table that is at most a quarter full."""
        self._table = np.full(max(TABLE_SIZE_MIN, 1 << (4 * count - 1).bit_length()), -1, np.int64)
        self._reach(TABLE_SIZE_MIN)
        self._place(np.flatnonzero(self._coded[:count]))

    def _place(self, slots: Slots) -> None:
        """Adds slots whose keys are not in the table."""
        at = self._home(self._low[slots], self._high[slots])
        mask = len(self._table) - 1
        while len(slots):
            free = np.flatnonzero(self._table[at] < 0)
            self._table[at[free]] = slots[free]  # of several slots for one place the last one wins
            on = np.flatnonzero(self._table[at] != slots)
            slots, at = slots[on], (at[on] + 1) & mask

    def _home(self, low: Words, high: Words) -> npt.NDArray[np.int64]:
        """The first place to probe: the upper bits of a multiplicative hash."""
        mixed = (low ^ (high * np.uint64(0x9E3779B97F4A7C15))) * np.uint64(0xD6E8FEB86659FD93)
        mixed ^= mixed >> np.uint64(32)
        mixed *= np.uint64(0xD6E8FEB86659FD93)
        shift = np.uint64(65 - len(self._table).bit_length())
        return (mixed >> shift).astype(np.int64)

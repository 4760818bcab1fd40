"""State in columns: a slot per key, a numpy array per state.

A batch looks its distinct keys up once (`slot_index.SlotKeys` remembers the slots), whatever the number of
states; reading and writing are then numpy's gather and scatter. A snapshot copies arrays, not keys: slots are
only added, so the first n keys of a snapshot do not change. When more than half of the slots are empty, the
keys get new slots in a new list.

Fixed-width types are stored as numbers; all others as Python objects in an array of objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.numpy_types import numpy_type
from unistream.model.columns.arrow_layouts import cast, entries, is_list
from unistream.model.columns.column_values import column_values
from unistream.model.columns.state_casts import refused_cast
from unistream.model.state import StateDescriptor
from unistream.state.common.lifetime import Lifetime
from unistream.state.common.migration import time_storage
from unistream.state.common.slot_index import SlotIndex, Slots

SLOTS_MIN: Final = 1024
COMPACT_SLOTS_MIN: Final = 4096


class Column:
    """`port.state.ColumnState` over slots. `life` None: values do not expire."""

    def __init__(self, descriptor: StateDescriptor, index: SlotIndex, life: Lifetime | None) -> None:
        self.descriptor = descriptor
        self._index = index
        self._life = life
        self._storage = storage_type(descriptor.type)
        dtype: Any = object if self._storage is None else numpy_type(self._storage)
        self._values: npt.NDArray[Any] = np.zeros(SLOTS_MIN, dtype)
        self.valid = np.zeros(SLOTS_MIN, np.bool_)
        self._expires = np.zeros(SLOTS_MIN if life is not None else 0, np.int64)

    def get(self, keys: Sequence[object]) -> pa.Array:
        slots, there = self._found(keys)
        shown = there if self._life is None else self._touch(self._life, slots, there)
        return to_array(self._values[slots], shown, self._storage, self.descriptor.type)

    def live(self, keys: Sequence[object]) -> pa.Array:
        """The values as a writer sees them: without expired ones. Removes nothing."""
        slots, there = self._found(keys)
        if self._life is not None:
            there &= self._expires[slots] > self._life.now()
        return to_array(self._values[slots], there, self._storage, self.descriptor.type)

    def _found(self, keys: Sequence[object]) -> tuple[Slots, npt.NDArray[np.bool_]]:
        slots = self._index.find(keys)
        self._reach(len(self._index))
        return slots, self.valid[slots] & (slots >= 0)

    def put(self, keys: Sequence[object], values: pa.Array) -> None:
        check_count(self.descriptor.name, values, len(keys))
        raw, there = self._raw(values)
        slots = self._index.make(keys)
        self._reach(len(self._index))
        self._values[slots] = raw
        self.valid[slots] = there
        if self._life is not None:
            self._expires[slots] = self._life.expiry()

    def load(self, keys: Sequence[object], values: pa.Array, expires: npt.NDArray[np.int64] | None) -> None:
        """Sets restored values; `expires` if they have a time to live."""
        self.put(keys, values)
        if expires is not None:
            self._expires[self._index.make(keys)] = expires

    def remove_expired(self) -> None:
        if self._life is not None:
            count = min(len(self._index), len(self.valid))
            self.valid[:count] &= self._expires[:count] > self._life.now()

    def filled(self, count: int) -> npt.NDArray[np.bool_]:
        """Which of the first `count` slots have a value."""
        self._reach(count)
        return self.valid[:count]

    def keep(self, kept: npt.NDArray[np.bool_]) -> None:
        """Keeps the slots where `kept` is true, in their order."""
        self._reach(len(kept))
        rows = np.flatnonzero(kept)
        self._values, self.valid = self._values[rows], self.valid[rows]
        if self._life is not None:
            self._expires = self._expires[rows]
        self._reach(SLOTS_MIN)

    def copy(self) -> ColumnCopy:
        """The current values. Expired ones were removed before."""
        count = len(self._index)
        self._reach(count)
        return ColumnCopy(
            keys=self._index.keys,
            values=self._values[:count].copy(),
            valid=self.valid[:count].copy(),
            expires=self._expires[:count].copy() if self._life is not None else None,
            storage=self._storage,
            type=self.descriptor.type,
        )

    def _touch(self, life: Lifetime, slots: Slots, there: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """The slots that a reader sees; removes expired values, and renews the others if reads count."""
        live = there & (self._expires[slots] > life.now())
        self.valid[slots[there & ~live]] = False
        if life.on_read:
            self._expires[slots[live]] = life.expiry()
        return there if life.shows_expired else live

    def _reach(self, count: int) -> None:
        if count <= len(self.valid):
            return
        size = max(SLOTS_MIN, count + count // 2)
        self._values = _grown(self._values, size)
        self.valid = _grown(self.valid, size)
        if self._life is not None:
            self._expires = _grown(self._expires, size)

    def _raw(self, values: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        values = conformed(self.descriptor.name, values, self.descriptor.type)
        there = (
            np.ones(len(values), np.bool_)
            if values.null_count == 0
            else values.is_valid().to_numpy(zero_copy_only=False)
        )
        if self._storage is None:
            raw = np.empty(len(values), object)
            raw[:] = python_values(self.descriptor.name, values)
            return raw, there
        return stored_numbers(values, self._storage), there


@dataclass(slots=True, kw_only=True)
class ColumnCopy:
    """A column at a snapshot, to be read in the background."""

    keys: list[Any]
    values: npt.NDArray[Any]
    valid: npt.NDArray[np.bool_]
    expires: npt.NDArray[np.int64] | None
    storage: pa.DataType | None
    type: pa.DataType
    slots: Slots = field(init=False)

    def __post_init__(self) -> None:
        self.slots = np.flatnonzero(self.valid)

    def filled_keys(self) -> Iterable[Any]:
        """Keys with a value, by slot."""
        return (self.keys[slot] for slot in self.slots.tolist())

    def columns(self, rows: npt.NDArray[np.int64]) -> list[pa.Array]:
        """Values (and times of expiry) of rows of `filled_keys()`."""
        slots = self.slots[rows]
        made = [to_array(self.values[slots], self.valid[slots], self.storage, self.type)]
        if self.expires is not None:
            made.append(pa.array(self.expires[slots], pa.int64()))
        return made


def check_column(descriptor: StateDescriptor) -> None:
    if descriptor.options.pickled:
        raise ConfigError(f"state {descriptor.name!r} is pickled; a column needs a declared type")


def check_count(name: str, values: pa.Array, count: int, what: str = "keys") -> None:
    if len(values) != count:
        raise UserCodeError(f"state {name!r}: {len(values)} values for {count} {what}")


def conformed(name: str, values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Values in one piece, of the declared type. Raises UserCodeError if a conversion would change them."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if values.type.equals(kind):
        return values
    reason = refused_cast(values.type, kind)
    try:
        made = cast(values, kind) if reason is None else None
        if made is not None and (pa.types.is_date64(kind) or pa.types.is_time(kind)):
            made.validate(full=True)  # a cast of numbers accepts parts of days, and times of more than a day
    except pa.ArrowException as error:
        raise _misfit(name, values.type, kind, str(error)) from error
    if made is None or _overflows(values, made):
        raise _misfit(name, values.type, kind, reason or "a number is too large for it")
    return made


def python_values(name: str, column: pa.Array) -> list[Any]:
    """`column_values`. Raises UserCodeError for a value without a Python object (a time after year 9999)."""
    try:
        return column_values(column)
    except (ValueError, OverflowError) as error:
        raise UserCodeError(
            f"state {name!r}: a value of {column.type} has no Python object: {error}"
        ) from error


def _misfit(name: str, given: pa.DataType, kind: pa.DataType, reason: str) -> UserCodeError:
    return UserCodeError(
        f"state {name!r} was given {given}, which is not of its declared type {kind}: {reason}"
    )


def _overflows(values: pa.Array, made: pa.Array) -> bool:
    """A finite number has become infinite, which a cast does not report."""
    old, new = values.type, made.type
    if pa.types.is_dictionary(old):
        return _overflows(values.dictionary_decode(), made)
    if pa.types.is_struct(new) and pa.types.is_struct(old):
        return any(_overflows(values.field(field.name), made.field(field.name)) for field in old)
    if pa.types.is_map(new) and pa.types.is_map(old):
        return any(_overflows(*parts) for parts in zip(entries(values), entries(made), strict=True))
    if is_list(new) and is_list(old):
        return _overflows(values.flatten(), made.flatten())
    if not pa.types.is_floating(new):
        return False
    after = pc.is_inf(made)
    return bool(pc.any(pc.and_not(after, pc.is_inf(values)) if pa.types.is_floating(old) else after).as_py())


def array_of(name: str, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Python values as an array of the declared type. Raises UserCodeError if one is not of it."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise UserCodeError(
            f"state {name!r} was given a value that is not of its declared type {kind}: {error}"
        ) from error


def stored_numbers(values: pa.Array, storage: pa.DataType) -> npt.NDArray[Any]:
    """Values as they are stored; 0 where there is none."""
    number = values if values.type.equals(storage) else values.view(storage)
    if number.null_count:
        number = number.fill_null(False if pa.types.is_boolean(storage) else 0)
    made: npt.NDArray[Any] = number.to_numpy(zero_copy_only=False)
    return made


def to_array(
    values: npt.NDArray[Any], there: npt.NDArray[np.bool_], storage: pa.DataType | None, kind: pa.DataType
) -> pa.Array:
    """Values where `there`, null elsewhere."""
    if storage is None:
        values[~there] = None  # a gather makes a copy
        return pa.array(values.tolist(), kind)
    made = pa.array(values, storage) if there.all() else pa.array(values, storage, mask=~there)
    return made if storage.equals(kind) else made.view(kind)


def storage_type(kind: pa.DataType) -> pa.DataType | None:
    """The type of number that a value is stored as; None: it is stored as a Python object."""
    types = pa.types
    if types.is_integer(kind) or types.is_boolean(kind) or types.is_float32(kind) or types.is_float64(kind):
        return kind
    return time_storage(kind)


def _grown(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    grown = np.zeros(size, array.dtype)
    grown[: len(array)] = array
    return grown

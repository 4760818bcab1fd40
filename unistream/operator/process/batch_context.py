"""The context of a user's function per batch: state in columns, timers in columns, clocks."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unistream.model.keyed_snapshot import StateKind
from unistream.model.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from unistream.operator.common import (
    GroupsOf,
    KeyedAppendingColumn,
    KeyedColumn,
    KeyedListColumn,
    KeyedMapColumn,
    places_of,
)
from unistream.operator.process.context import Clocks, timer_time
from unistream.operator.process.timer_columns import TimerColumns, Times
from unistream.port.state import KeyedStateBackend

TimesOf: TypeAlias = int | pa.Array | npt.NDArray[Any] | Sequence[int | None]

_SINGLE: Final = (int, float, np.generic, datetime.date)  # types of one time (valid or not) for all keys

_COLUMNS: Final[Mapping[StateKind, Callable[[Any, Any], Any]]] = {
    StateKind.VALUE: KeyedColumn,
    StateKind.LIST: KeyedListColumn,
    StateKind.MAP: KeyedMapColumn,
    StateKind.REDUCING: KeyedAppendingColumn,
    StateKind.AGGREGATING: KeyedAppendingColumn,
}


class BatchContext(Clocks):
    """State of the keys of a batch of rows or timers, their timers, and clocks."""

    def __init__(self, backend: KeyedStateBackend) -> None:
        super().__init__()
        self.event = TimerColumns()
        self.processing = TimerColumns()
        self._backend = backend
        self._keys: Sequence[Any] | None = None
        self._records: pa.RecordBatch | None = None
        self._columns: dict[str, tuple[StateDescriptor, Any]] = {}

    @overload
    def column(self, descriptor: ValueStateDescriptor) -> KeyedColumn: ...
    @overload
    def column(self, descriptor: ListStateDescriptor) -> KeyedListColumn: ...
    @overload
    def column(self, descriptor: MapStateDescriptor) -> KeyedMapColumn: ...
    @overload
    def column(
        self, descriptor: ReducingStateDescriptor | AggregatingStateDescriptor
    ) -> KeyedAppendingColumn: ...
    def column(self, descriptor: StateDescriptor) -> Any:
        """A state of the keys of the batch; always the same object.

        Raises:
            ConfigError: the state is pickled, or declared twice with different types, or the stored type
                cannot be converted.
        """
        found = self._columns.get(descriptor.name)
        if found is None or found[0] is not descriptor:
            made = _COLUMNS[descriptor.kind](self._backend.column(descriptor), self)
            found = self._columns[descriptor.name] = (descriptor, made)
        return found[1]

    def register_event_time_timers(self, times: TimesOf, groups: GroupsOf | None = None) -> None:
        """`on_timers` for keys of the batch, once the watermark has reached `times`.

        Args:
            times: ms, or timestamps; null: no timer. One number applies to all.
            groups: Their keys: positions in `batch.keys`, such as `batch.groups`. None: there is one time for
                each of `batch.keys`.

        Raises:
            TypeError: one time that is no whole number.
            ValueError: the number of times is not that of keys (or groups), a group is not a position in
                `keys`, or times are not whole ms that fit into 64 bits.
        """
        self.event.register(*self._timers("register_event_time_timers", times, groups))

    def delete_event_time_timers(self, times: TimesOf, groups: GroupsOf | None = None) -> None:
        """Removes timers, if they exist. Arguments as above."""
        self.event.delete(*self._timers("delete_event_time_timers", times, groups))

    def register_processing_time_timers(self, times: TimesOf, groups: GroupsOf | None = None) -> None:
        """`on_timers` for keys of the batch, once the task's clock has reached `times`; as above."""
        self.processing.register(*self._timers("register_processing_time_timers", times, groups))

    def delete_processing_time_timers(self, times: TimesOf, groups: GroupsOf | None = None) -> None:
        """Removes timers, if they exist. Arguments as above."""
        self.processing.delete(*self._timers("delete_processing_time_timers", times, groups))

    def enter(self, keys: Sequence[Any] | None, records: pa.RecordBatch | None) -> None:
        """Called by the operator around each call of the user's function, with the keys and their columns."""
        self._keys, self._records = keys, records

    def _timers(self, call: str, times: TimesOf, groups: GroupsOf | None) -> tuple[Times, pa.RecordBatch]:
        """Times and keys, without nulls."""
        keys = self._records
        if keys is None:
            raise RuntimeError("there is no batch in open(); use timers in process_batch or on_timers")
        if groups is not None:
            keys = keys.take(pa.array(places_of(groups, keys.num_rows)))
        if times is None or isinstance(times, _SINGLE):
            return np.full(keys.num_rows, timer_time(call, times), np.int64), keys
        at = _milliseconds(call, times)
        if len(at) != keys.num_rows:
            what = "keys of the batch" if groups is None else "groups"
            raise ValueError(f"{call}: {len(at)} times for {keys.num_rows} {what}")
        if at.null_count:
            keys, at = keys.filter(at.is_valid()), at.drop_null()
        return at.to_numpy(), keys

    @property
    def batch_keys(self) -> Sequence[Any]:
        """Keys of the batch, in the form of the backend."""
        if self._keys is None:
            raise RuntimeError("there is no batch in open(); use columns in process_batch")
        return self._keys


def _milliseconds(call: str, times: pa.Array | npt.NDArray[Any] | Sequence[int | None]) -> pa.Array:
    """Times as int64. Raises ValueError unless they are whole numbers of 64 bits or timestamps of whole
    ms."""
    wanted = f"{call}: times of timers are whole milliseconds or timestamps"
    try:
        found = times.combine_chunks() if isinstance(times, pa.ChunkedArray) else pa.array(times)
        if pa.types.is_timestamp(found.type):
            found = found.cast(pa.timestamp("ms", found.type.tz))
        elif not pa.types.is_integer(found.type) and not pa.types.is_null(found.type):
            raise ValueError(f"{wanted}, not {found.type}")
        return found.cast(pa.int64())
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise ValueError(f"{wanted}: {error}") from error

"""The context of a user's function per row, and the collector of its output."""

from __future__ import annotations

import datetime
import operator
from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar, overload

import numpy as np
import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.model import state as states
from unistream.model.columns.column_values import column_values
from unistream.model.elements import Batch
from unistream.operator.common import BaseOperator, CurrentRow, RowSchema, TakenRows, positions
from unistream.operator.process.held import HeldValue, held
from unistream.operator.process.timer_table import KeyedTimers
from unistream.operator.process.undo import Undo, undoable
from unistream.operator.process.user_metrics import UserMetrics
from unistream.port.metrics import Uncounted
from unistream.port.source import check_tag
from unistream.port.state import AppendingState, KeyedStateBackend, ListState, MapState, ValueState

Declared = TypeVar("Declared", states.StateDescriptor, states.OperatorListDescriptor)


class Clocks:
    """The current times of a function, and what it counts.

    Attributes:
        metrics: Counters and gauges of one's own.
    """

    def __init__(self) -> None:
        self.watermark = MIN_WATERMARK
        self.now_ms = 0
        self.metrics = UserMetrics(Uncounted())

    def current_watermark(self) -> int:
        """ms; the lowest int64 before the first one. In `on_timer` it is the watermark that has reached the
        timer, the same for all that are due (as in Flink, whose InternalTimerServiceImpl moves it before any
        timer fires), and never less than the timer's time."""
        return self.watermark

    def current_processing_time(self) -> int:
        """Wall clock of the task, ms."""
        return self.now_ms


class ProcessContext(Clocks):
    """The current row or timer, state of its key, timers and clocks.

    Attributes:
        time_domain: In `on_timer`: ``"event"`` or ``"processing"``; otherwise None.
    """

    def __init__(
        self,
        backend: KeyedStateBackend,
        event: KeyedTimers,
        processing: KeyedTimers,
        undo: Undo | None = None,
    ) -> None:
        super().__init__()
        self._undo = undo
        self._place: CurrentRow | None = None  # of the current row, if there is one
        self._times: pa.Int64Array | list[int] | None = None  # of the rows
        self._time: int | None = None  # of a timer
        self.time_domain: str | None = None
        self.current: Any = None
        self.has_key = False
        self._backend = backend
        self._event = event
        self._processing = processing
        self._handles: dict[str, tuple[object, Any]] = {}
        self._known: dict[int, Any] = {}  # by identity of the descriptors in _handles
        self._first: object = self  # descriptor of the first one: most functions have no other
        self._first_handle: Any = None
        self.holds_values = False  # between `enter` and `leave`, in a bounded job
        self._held: dict[str, HeldValue] = {}

    @property
    def timestamp(self) -> int | None:
        """Event time of the row (None if it has none), or the timer's time; ms."""
        if self._place is None or self._times is None:
            return self._time
        if not isinstance(self._times, list):  # the first row that asks
            self._times = column_values(self._times)
        return self._times[self._place.position]

    def rows_come(self, place: CurrentRow, times: pa.Int64Array | None) -> None:
        """Takes the rows of a batch, with these event times: the current one is that at `place`."""
        self._place, self._times, self._time = place, times, None

    def timer_comes(self, at: int) -> None:
        """The current event is no row, but a timer for `at`, ms."""
        self._place, self._times, self._time = None, None, at

    def enter(self) -> None:
        """Takes up the current key in a bounded job: its rows, or a timer of it, come."""
        for value in self._held.values():
            value.enter()

    def leave(self) -> None:
        """The current key is about to change."""
        for value in self._held.values():
            value.leave()

    @property
    def key_tuple(self) -> tuple[object, ...]:
        """The current key, one value per key column."""
        return self._backend.values_of(self._key())

    @property
    def key(self) -> Any:
        """The current key: a value, or a tuple if it has several columns."""
        values = self.key_tuple
        return values[0] if len(values) == 1 else values

    @overload
    def state(self, descriptor: str, value_type: pa.DataType) -> ValueState: ...
    @overload
    def state(self, descriptor: states.ValueStateDescriptor) -> ValueState: ...
    @overload
    def state(self, descriptor: states.ListStateDescriptor) -> ListState: ...
    @overload
    def state(self, descriptor: states.MapStateDescriptor) -> MapState: ...
    @overload
    def state(
        self, descriptor: states.ReducingStateDescriptor | states.AggregatingStateDescriptor
    ) -> AppendingState: ...
    def state(self, descriptor: states.StateDescriptor | str, value_type: pa.DataType | None = None) -> Any:
        """State of the current key, as `descriptor` declares it; or value state with a name and a type.

        Always the same object, which follows the current key: `open` may keep it.

        >>> import pyarrow as pa, unistream as us
        >>> class Count(us.KeyedProcessFunction):
        ...     seen = us.ValueStateDescriptor("seen", pa.int64())
        ...     def process_element(self, row, context, out):
        ...         seen = context.state(self.seen)
        ...         seen.update((seen.value() or 0) + 1)
        ...         out.emit({"user": context.key, "seen": seen.value()})

        Raises:
            ConfigError: the name is declared twice, with different types; or the stored type cannot be
                converted.
        """
        if descriptor is self._first and value_type is None:  # runs for each row: half the time of the next
            return self._first_handle
        if value_type is None and (known := self._known.get(id(descriptor))) is not None:
            return known
        name = descriptor if isinstance(descriptor, str) else descriptor.name
        found = self._handles.get(name)
        if found is not None and found[0] is (value_type if value_type is not None else descriptor):
            return found[1]
        return self._open_state(descriptor, value_type)

    def register_event_time_timer(self, timestamp: int) -> None:
        """`on_timer` for the current key once the watermark has reached `timestamp`.

        Args:
            timestamp: Whole ms since the epoch, an int of Python or numpy that fits into 64 bits.

        Raises:
            TypeError: another type, such as float, datetime or None.
            ValueError: it does not fit.
        """
        self._event.register(timer_time("register_event_time_timer", timestamp), self._key())

    def delete_event_time_timer(self, timestamp: int) -> None:
        """Removes a timer, if it exists. Argument as above."""
        self._event.delete(timer_time("delete_event_time_timer", timestamp), self._key())

    def register_processing_time_timer(self, timestamp: int) -> None:
        """`on_timer` for the current key once the task's clock has reached `timestamp`; as above."""
        self._processing.register(timer_time("register_processing_time_timer", timestamp), self._key())

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Removes a timer, if it exists. Argument as above."""
        self._processing.delete(timer_time("delete_processing_time_timer", timestamp), self._key())

    def _key(self) -> Any:
        if not self.has_key:
            raise RuntimeError("there is no current key here; there is one in process_element and on_timer")
        return self.current

    def _open_state(self, descriptor: states.StateDescriptor | str, value_type: pa.DataType | None) -> Any:
        declared_as: object = descriptor if value_type is None else value_type
        if isinstance(descriptor, str):
            if value_type is None:
                raise ConfigError(f"state {descriptor!r} needs a type, such as pa.int64(), or a descriptor")
            descriptor = states.ValueStateDescriptor(descriptor, value_type)
        handle = self._backend.state(descriptor)
        if self.holds_values:
            handle = self._hold(descriptor, handle)
        if self._undo is not None:
            handle = undoable(handle, descriptor, self._undo)
        self._handles[descriptor.name] = (declared_as, handle)
        if declared_as is descriptor:
            if not self._known:
                self._first, self._first_handle = descriptor, handle
            self._known = {id(one): opened for one, opened in self._handles.values()}
        return handle

    def _hold(self, descriptor: states.StateDescriptor, handle: Any) -> Any:
        """One for each state, whatever it is called; maybe in the middle of a key."""
        found = self._held.get(descriptor.name)
        if found is None:
            found = held(handle, descriptor)
            if found is None:
                return handle
            self._held[descriptor.name] = found
            if self.has_key:
                found.enter()
        return found


def timer_time(call: str, timestamp: Any) -> int:
    """The time of a timer, ms. `call`: the method, for messages.

    >>> timer_time("delete_event_time_timer", 5.5)
    Traceback (most recent call last):
    TypeError: delete_event_time_timer(5.5): a timer's time is an int, ms since the epoch; convert it by int

    Raises:
        TypeError: it is no whole number.
        ValueError: it does not fit into 64 bits.
    """
    if type(timestamp) is not int:
        timestamp = _whole(call, timestamp)
    if not MIN_WATERMARK <= timestamp <= MAX_WATERMARK:
        raise ValueError(
            f"{call}({timestamp}): a timer's time is an int, ms since the epoch, from -2**63 to 2**63 - 1; "
            "use 2**63 - 1 for a timer at the end of the input"
        )
    return int(timestamp)


def _whole(call: str, timestamp: Any) -> int:
    if hasattr(timestamp, "__index__") and not isinstance(timestamp, bool):
        return operator.index(timestamp)
    remedy = "convert it by int"
    if timestamp is None:
        remedy = "for no timer, omit the call"
    elif isinstance(timestamp, datetime.date):
        remedy = "convert a datetime with a time zone by int(moment.timestamp() * 1000)"
    raise TypeError(f"{call}({timestamp!r}): a timer's time is an int, ms since the epoch; {remedy}")


SideSchemas: TypeAlias = Mapping[str, pa.Schema]
"""Schemas of side outputs by tag."""


def row_schemas(returns: pa.Schema | None, side_outputs: SideSchemas | None) -> dict[str | None, RowSchema]:
    """The schemas of the main output and of side outputs, for a `Collector`."""
    sides = side_outputs or {}
    return {None: RowSchema(returns), **{tag: RowSchema(schema) for tag, schema in sides.items()}}


class Collector:
    """Collects the rows that a function emits, with the event time of the current row or timer.

    Rows are copied: a function may change an emitted dict, and its values, and emit it again.

    Args:
        schemas: Schemas of known outputs (None: the main one); for others that of the first rows.

    Attributes:
        place: The current row of the batch, or the current one of the timers that are due.
        fired: Times of the timers that were due, ms.
    """

    def __init__(self, schemas: dict[str | None, RowSchema] | None = None) -> None:
        self.place = CurrentRow()
        self.fired: list[int] = []
        self._schemas = {} if schemas is None else schemas
        self._rows: dict[str | None, TakenRows] = {}
        self.emit = self._of(None).take  # type: ignore[assignment,method-assign]  # one call less

    def emit(self, row: Mapping[str, Any]) -> None:
        """Emits a row on the main output."""
        self._of(None).take(row)

    def emit_side(self, tag: str | None, row: Mapping[str, Any]) -> None:
        """Emits a row on the side output `tag`."""
        self._of(tag).take(row)

    def _of(self, tag: str | None) -> TakenRows:
        found = self._rows.get(tag)
        if found is None:
            if tag is not None:
                check_tag(tag, "emit_side")
            schema = self._schemas.setdefault(tag, RowSchema(None, "side_outputs="))
            found = self._rows[tag] = schema.taken(self.place)
        return found

    def check(self) -> None:
        """Raises ValueRefused if what was emitted for the current row does not match the schema, ConfigError
        if that is not known."""
        position = self.place.position
        for tag, rows in self._rows.items():
            if rows.parents and rows.parents[-1] == position:
                self._schemas[tag].check(rows, position)

    def take_back(self) -> None:
        """Forgets what was emitted for the current row."""
        for rows in self._rows.values():
            rows.take_back(self.place.position)

    def clear(self) -> None:
        """Forgets what was emitted."""
        for rows in self._rows.values():
            rows.clear()

    def flush(self, operator: BaseOperator, what: str, times: pa.Int64Array | None) -> None:
        """Emits all rows as batches, each row with the event time of its parent, one of `times`.

        Raises:
            UserCodeError: a row does not match the schema of its output; `what` names the function.
        """
        for tag, rows in self._rows.items():
            if not rows:
                continue
            where = "" if tag is None else f" on side output {tag!r}"
            records = self._schemas[tag].build(operator, f"{what} emitted{where}", rows, rows.parents)
            timestamps = _times_of(rows.parents, times)
            if tag is None:
                operator.output.emit(Batch(records, timestamps))
            else:
                operator.output.emit_side(tag, Batch(records, timestamps))


def _times_of(parents: list[int], times: pa.Int64Array | None) -> pa.Int64Array | None:
    """The time of each row's parent."""
    if times is None or (len(parents) == len(times) and parents == positions(len(times))):
        return times  # one row for each: there is nothing to look up
    return times.take(pa.array(np.fromiter(parents, np.int64, len(parents))))


def declared(function: object, kind: type[Declared]) -> tuple[Declared, ...]:
    """Descriptors of one kind that are attributes of the function or of its classes; one for each name."""
    return tuple({one.name: one for one in declarations(function, kind)}.values())


def declarations(function: object, kind: type[Declared]) -> list[Declared]:
    """Descriptors of one kind as `declared` finds them, possibly several with the same name. An attribute of
    a class hides that of its base classes."""
    found: dict[str, object] = {}
    spaces = [*(vars(cls) for cls in reversed(type(function).__mro__)), getattr(function, "__dict__", {})]
    for space in spaces:
        found.update(space)
    return [value for value in found.values() if isinstance(value, kind)]

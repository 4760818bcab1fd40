"""User functions per row and key, with value state and timers.

The function sees one row at a time; its state is the state of that row's key. Timers are keyed state:
they are in every snapshot, move with their key group, and fire in the order of their times, event timers
inside the watermark that passes them. The same (key, time) registered twice fires once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from unistream.base.errors import UserCodeError
from unistream.base.ids import CheckpointId
from unistream.base.limits import MIN_WATERMARK
from unistream.model.elements import Batch
from unistream.model.key_groups import key_groups
from unistream.model.snapshot import KEY_GROUP_COLUMN, OperatorSnapshot, OperatorState
from unistream.operator.base import BaseOperator, function_name
from unistream.operator.rows import Row, RowSchema
from unistream.operator.timers import KeyedTimers
from unistream.port.state import KeyTuple, StateBackend

EVENT_TIMERS: Final = "__event_timers"
PROCESSING_TIMERS: Final = "__processing_timers"
_TIMESTAMP: Final = "__timestamp"


class KeyedProcessFunction:
    """Subclass it, override `process_element` and, for timers, `on_timer`.

    One instance serves all keys of a subtask: keep nothing in `self` but configuration; what belongs to
    a key goes into `context.state(...)`.
    """

    def open(self, context: ProcessContext) -> None:
        """Once, before the first row. There is no current key yet."""

    def process_element(self, row: Row, context: ProcessContext, out: Collector) -> None:
        """One row, as a dict by column."""
        raise TypeError(f"{type(self).__name__} must define process_element(row, context, out)")

    def on_timer(self, timestamp: int, context: ProcessContext, out: Collector) -> None:
        """A timer of `context.key` for `timestamp` (ms) is due; `context.time_domain` says which clock."""

    def close(self) -> None:
        """Once, at the end, always."""


class KeyedValue:
    """One value of the current key."""

    def __init__(self, state: Any, context: ProcessContext) -> None:
        self._state = state
        self._context = context

    def value(self) -> Any:
        """The value, or None."""
        return self._state.get(self._context.key_tuple)

    def update(self, value: Any) -> None:
        """Sets it; None clears it."""
        if value is None:
            self._state.remove(self._context.key_tuple)
        else:
            self._state.put(self._context.key_tuple, value)

    def clear(self) -> None:
        self._state.remove(self._context.key_tuple)


class ProcessContext:
    """What a function may ask about the current row or timer.

    Attributes:
        timestamp: Event time of the row (None if it has none), or the timer's time; ms.
        time_domain: Inside `on_timer`: ``"event"`` or ``"processing"``; else None.
    """

    def __init__(self, backend: StateBackend, event: KeyedTimers, processing: KeyedTimers) -> None:
        self.timestamp: int | None = None
        self.time_domain: str | None = None
        self.watermark = MIN_WATERMARK
        self.now_ms = 0
        self.key_schema: pa.Schema | None = None
        self._backend = backend
        self._event = event
        self._processing = processing
        self._key: KeyTuple | None = None
        self._values: dict[str, KeyedValue] = {}

    @property
    def key_tuple(self) -> KeyTuple:
        """The current key, one value per key column."""
        if self._key is None:
            raise RuntimeError("there is no current key in open(); use state in process_element or on_timer")
        return self._key

    @property
    def key(self) -> Any:
        """The current key: a value, or a tuple if it has several columns."""
        return self.key_tuple[0] if len(self.key_tuple) == 1 else self.key_tuple

    def enter(self, key: KeyTuple, timestamp: int | None, domain: str | None = None) -> None:
        """Called by the operator before each call of the user's function."""
        self._key, self.timestamp, self.time_domain = key, timestamp, domain

    def state(self, name: str, value_type: pa.DataType) -> KeyedValue:
        """The value called `name` of the current key; the same object for the same name."""
        handle = self._values.get(name)
        if handle is None:
            assert self.key_schema is not None, self.key_tuple
            stored = self._backend.value_state(name, self.key_schema, value_type)
            handle = self._values[name] = KeyedValue(stored, self)
        return handle

    def current_watermark(self) -> int:
        """ms; the lowest int64 before the first one."""
        return self.watermark

    def current_processing_time(self) -> int:
        """Wall clock of the task, ms."""
        return self.now_ms

    def register_event_time_timer(self, timestamp: int) -> None:
        """`on_timer` for the current key once the watermark has reached `timestamp` (ms)."""
        self._event.register(timestamp, self.key_tuple)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._event.delete(timestamp, self.key_tuple)

    def register_processing_time_timer(self, timestamp: int) -> None:
        """`on_timer` for the current key once the task's clock has reached `timestamp` (ms)."""
        self._processing.register(timestamp, self.key_tuple)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._processing.delete(timestamp, self.key_tuple)


class Collector:
    """Takes the rows that a function emits; they carry the time of the row or timer they come from."""

    def __init__(self) -> None:
        self.rows: dict[str | None, list[Mapping[str, Any]]] = {}
        self.times: dict[str | None, list[int | None]] = {}
        self.parents: dict[str | None, list[int]] = {}
        self.timestamp: int | None = None
        self.position = 0

    def emit(self, row: Mapping[str, Any]) -> None:
        """A row on the main output."""
        self.emit_side(None, row)

    def emit_side(self, tag: str | None, row: Mapping[str, Any]) -> None:
        """A row on the side output `tag`."""
        self.rows.setdefault(tag, []).append(row)
        self.times.setdefault(tag, []).append(self.timestamp)
        self.parents.setdefault(tag, []).append(self.position)


class KeyedProcessOperator(BaseOperator):
    """Runs a `KeyedProcessFunction` over rows that are partitioned by `keys`.

    Args:
        returns: Schema of the main output; None: inferred from the first rows, then fixed.
        key_schema: Names and types of the key columns; None: those of the first batch.
    """

    def __init__(
        self,
        function: KeyedProcessFunction,
        keys: Sequence[str],
        *,
        returns: pa.Schema | None = None,
        key_schema: pa.Schema | None = None,
    ) -> None:
        self._function = function
        self._keys = list(keys)
        self._key_schema = key_schema
        self._schemas: dict[str | None, RowSchema] = {None: RowSchema(returns)}
        self._event = KeyedTimers()
        self._processing = KeyedTimers()
        self._armed: int | None = None
        self._process: ProcessContext | None = None

    def initialize_state(self, state: OperatorState) -> None:
        timers = {EVENT_TIMERS: self._event, PROCESSING_TIMERS: self._processing}
        for name, target in timers.items():
            for table in state.keyed.get(name, []):
                self._learn_key(table.schema)
                columns = [table.column(key).to_pylist() for key in self._keys]
                target.restore(table.column(_TIMESTAMP).to_pylist(), zip(*columns, strict=True))
        values = {name: tables for name, tables in state.keyed.items() if name not in timers}
        if values:
            self.context.state.restore(values)

    def open(self) -> None:
        self._process = ProcessContext(self.context.state, self._event, self._processing)
        self._process.key_schema = self._key_schema
        self._call("open", None, self._function.open, self._process)
        self._arm()

    def process_batch(self, batch: Batch, input_index: int) -> None:
        context, out = self._ready(), Collector()
        self._learn_key(batch.records.schema)
        context.key_schema = self._key_schema
        times = batch.timestamps.to_pylist() if batch.timestamps is not None else [None] * batch.num_rows
        keys = zip(*(batch.records.column(key).to_pylist() for key in self._keys), strict=True)
        process = self._function.process_element
        try:
            for row, key, timestamp in zip(batch.records.to_pylist(), keys, times, strict=True):
                context.enter(key, timestamp)
                out.timestamp = timestamp
                process(row, context, out)
                out.position += 1
        except Exception as error:
            raise self.user_error(self._what("process_element"), error, out.position) from error
        self._emit(out)
        self._arm()

    def process_watermark(self, timestamp: int) -> None:
        context = self._ready()
        out = Collector()
        for at, key in self._event.due(timestamp):
            context.watermark = max(context.watermark, at)
            self._fire(context, out, at, key, "event")
        context.watermark = timestamp
        self._emit(out)
        self._arm()

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        keyed = dict(self.context.state.snapshot())
        for name, timers in ((EVENT_TIMERS, self._event), (PROCESSING_TIMERS, self._processing)):
            if len(timers):
                keyed[name] = self._timer_table(timers)
        return OperatorSnapshot(keyed=keyed)

    def close(self) -> None:
        self._function.close()

    def _fire(self, context: ProcessContext, out: Collector, at: int, key: KeyTuple, domain: str) -> None:
        context.enter(key, at, domain)
        out.timestamp = at
        self._call(f"on_timer({at}) of key {key}", None, self._function.on_timer, at, context, out)

    def _fire_processing(self, at_ms: int) -> None:
        self._armed = None
        context, out = self._ready(), Collector()
        for at, key in self._processing.due(at_ms):
            self._fire(context, out, at, key, "processing")
        self._emit(out)
        self._arm()

    def _arm(self) -> None:
        """One timer of the task stands for the earliest of ours."""
        earliest = self._processing.earliest()
        if earliest is not None and (self._armed is None or earliest < self._armed):
            self._armed = earliest
            self.context.timers.register(earliest, self._fire_processing)

    def _ready(self) -> ProcessContext:
        assert self._process is not None, "open comes first"
        self._process.now_ms = self.context.timers.now_ms()
        return self._process

    def _learn_key(self, schema: pa.Schema) -> None:
        if self._key_schema is None:
            self._key_schema = pa.schema([schema.field(key) for key in self._keys])

    def _emit(self, out: Collector) -> None:
        for tag, rows in out.rows.items():
            schema = self._schemas.setdefault(tag, RowSchema(None))
            records = schema.build(self, self._what("the output"), rows, out.parents[tag])
            times = out.times[tag]
            timestamps = None if None in times else pa.array(times, pa.int64())
            if tag is None:
                self.output.emit(Batch(records, timestamps))
            else:
                self.output.emit_side(tag, Batch(records, timestamps))

    def _timer_table(self, timers: KeyedTimers) -> pa.Table:
        assert self._key_schema is not None, "a timer has a key"
        times, keys = timers.all()
        columns: Iterable[Sequence[object]] = zip(*keys, strict=True)
        arrays = [pa.array(values, f.type) for values, f in zip(columns, self._key_schema, strict=True)]
        records = pa.RecordBatch.from_arrays(arrays, names=self._keys)
        groups = key_groups(records, self._keys, self.context.max_parallelism).astype(np.uint16)
        table = pa.Table.from_batches([records]).add_column(0, KEY_GROUP_COLUMN, pa.array(groups))
        return table.append_column(_TIMESTAMP, pa.array(times, pa.int64()))

    def _call(self, what: str, row: int | None, function: Any, *arguments: object) -> None:
        try:
            function(*arguments)
        except UserCodeError:
            raise
        except Exception as error:
            raise self.user_error(self._what(what), error, row) from error

    def _what(self, what: str) -> str:
        return f"{function_name(self._function)}, {what}"

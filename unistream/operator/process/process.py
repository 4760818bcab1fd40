"""User functions per row and key, with state and timers.

The function sees one row at a time; its state is the state of that row's key. Timers are keyed state:
they are in every snapshot, move with their key group, and fire in the order of their times, event timers
inside the watermark that passes them. The same (key, time) registered twice fires once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa

from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.ids import CheckpointId
from unistream.model.column_values import column_values, row_values
from unistream.model.elements import Batch
from unistream.model.snapshot import OperatorSnapshot, OperatorState
from unistream.model.state import StateDescriptor, check_declarations
from unistream.operator.common import (
    BaseOperator,
    Row,
    RowSchema,
    check_methods,
    check_returned_nothing,
    function_name,
)
from unistream.operator.process.context import Collector, ProcessContext, declarations, declared_states
from unistream.operator.process.timer_table import (
    EVENT_TIMERS,
    PROCESSING_TIMERS,
    stored_timers,
    table_of_timers,
)
from unistream.operator.process.timers import KeyedTimers
from unistream.port.operator import CommitPermit
from unistream.port.state import KeyedStateBackend

__all__ = [
    "EVENT_TIMERS",
    "PROCESSING_TIMERS",
    "Collector",
    "KeyedOperator",
    "KeyedProcessFunction",
    "KeyedProcessOperator",
    "ProcessContext",
]


USER_METHODS = (
    "open",
    "process_element",
    "process_broadcast_element",
    "process_batch",
    "on_timer",
    "on_timers",
    "close",
)


class KeyedProcessFunction:
    """Subclass it, override `process_element` and, for timers, `on_timer`.

    One instance serves all keys of a subtask: keep nothing in `self` but configuration; what belongs to
    a key goes into `context.state(...)`. State that is declared as attributes of the class is checked against
    what is restored before the first row.
    """

    def open(self, context: ProcessContext) -> None:
        """Once, before the first row. There is no current key yet."""

    def process_element(self, row: Row, context: ProcessContext, out: Collector) -> None:
        """One row, as a dict by column. What comes of it goes to `out.emit`; nothing is returned."""
        raise TypeError(f"{type(self).__name__} must define process_element(row, context, out)")

    def on_timer(self, timestamp: int, context: ProcessContext, out: Collector) -> None:
        """A timer of `context.key` for `timestamp` (ms) is due; `context.time_domain` says which clock."""

    def close(self) -> None:
        """Once, at the end, always."""


class KeyedOperator(BaseOperator):
    """Common to the operators that run a user's function with keyed state: its declarations, its backend.

    Args:
        key_schema: Names and types of the key columns; None: those of the first batch.

    Raises:
        ConfigError: what the function declares contradicts itself, or a method of it would do nothing.
    """

    def __init__(self, function: Any, keys: Sequence[str], key_schema: pa.Schema | None) -> None:
        check_declarations(function_name(function), declarations(function, StateDescriptor))
        check_methods(function, *USER_METHODS)
        self._function = function
        self._keys = list(keys)
        self._key_schema = None if key_schema is None else _without_dictionaries(key_schema)
        self._backend: KeyedStateBackend | None = None
        self._armed: int | None = None

    def declared_states(self) -> tuple[StateDescriptor, ...]:
        """Keyed state that is known before anything runs: attributes of the function."""
        return declared_states(self._function)

    def declared_keys(self) -> pa.Schema | None:
        """Names and types of the key columns, where they are known before anything runs."""
        return self._key_schema

    @property
    def backend(self) -> KeyedStateBackend:
        """Keyed state; from `initialize_state` on."""
        if self._backend is None:
            self._backend = self.context.state
        return self._backend

    def initialize_state(self, state: OperatorState) -> None:
        self._configured(lambda: self._restore(state))

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        self.backend.notify_complete(permit.checkpoint_id)

    def close(self) -> None:
        """The function, then its state."""
        try:
            self._function.close()
        finally:
            if self._backend is not None:
                self._backend.close()

    def keys_of(self, records: pa.RecordBatch) -> Sequence[Any]:
        """The key of each row."""
        missing = [key for key in self._keys if key not in records.schema.names]
        if missing:
            raise self.user_error(
                f"there is no key column {missing[0]!r} among {', '.join(records.schema.names)}", None
            )
        keys = records.select(self._keys)
        if self._key_schema is None:
            self._key_schema = _without_dictionaries(keys.schema)
        return self.backend.keys_of(keys)

    def fire_at(self, earliest: int | None, fire: Callable[[int], None]) -> None:
        """One timer of the task stands for the earliest of ours. `fire` may come too often, but not late."""
        if earliest is None or (self._armed is not None and self._armed <= earliest):
            return

        def fired(at_ms: int) -> None:
            self._armed = None
            fire(at_ms)

        self._armed = earliest
        self.context.timers.register(earliest, fired)

    def _restore(self, state: OperatorState) -> None:
        if state.state:
            self.backend.restore(state.state)
        if self._key_schema is not None:
            self.backend.declare_keys(self._key_schema)

    def _configured(self, action: Any) -> None:
        """Runs `action`; a ConfigError in it names the operator."""
        try:
            action()
        except ConfigError as error:
            raise ConfigError(f"operator {self.context.name!r}: {error}") from error

    def _call(self, what: str, row: int | None, function: Any, *arguments: object) -> None:
        try:
            function(*arguments)
        except (UserCodeError, ConfigError):
            raise
        except Exception as error:
            raise self.user_error(self._what(what), error, row) from error

    def _what(self, what: str) -> str:
        return f"{function_name(self._function)}, {what}"


class KeyedProcessOperator(KeyedOperator):
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
        super().__init__(function, keys, key_schema)
        self._schemas: dict[str | None, RowSchema] = {None: RowSchema(returns)}
        self._event = KeyedTimers()
        self._processing = KeyedTimers()
        self._process: ProcessContext | None = None

    def open(self) -> None:
        self._process = self._make_context()
        self._configured(lambda: [self.backend.state(descriptor) for descriptor in self.declared_states()])
        self._call("open", None, self._function.open, self._process)
        self._arm()

    def process_batch(self, batch: Batch, input_index: int) -> None:
        self._process_rows(batch, self._function.process_element)

    def process_watermark(self, timestamp: int) -> None:
        out = Collector(self._schemas)
        self._ready().watermark = timestamp
        for at, key in self._event.due(timestamp):
            self._fire(out, at, key, "event")
        self._emit(out, pa.array(out.fired, pa.int64()))
        self._arm()

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        timers = []
        for name, there in ((EVENT_TIMERS, self._event), (PROCESSING_TIMERS, self._processing)):
            if len(there):
                assert self._key_schema is not None, "a timer has a key"
                most = self.context.max_parallelism
                timers.append(table_of_timers(name, there, self.backend, self._key_schema, most))
        return OperatorSnapshot(state=self.backend.snapshot(checkpoint_id), timers=tuple(timers))

    def _make_context(self) -> ProcessContext:
        return ProcessContext(self.backend, self._event, self._processing)

    def _restore(self, state: OperatorState) -> None:
        super()._restore(state)
        for name, timers in ((EVENT_TIMERS, self._event), (PROCESSING_TIMERS, self._processing)):
            for times, keys in stored_timers(state.keyed.get(name, []), self._keys):
                timers.restore(times.to_pylist(), self.keys_of(keys))

    def _process_rows(self, batch: Batch, process: Any) -> None:
        context, out = self._ready(), Collector(self._schemas)
        keys = self.keys_of(batch.records)
        times = repeat(None) if batch.timestamps is None else column_values(batch.timestamps)
        set_current = self.backend.set_current
        context.has_key, context.time_domain = True, None
        position = 0
        try:
            for position, (row, key, timestamp) in enumerate(
                zip(row_values(batch.records), keys, times, strict=False)
            ):
                set_current(key)
                context.current, context.timestamp, out.position = key, timestamp, position
                if (returned := process(row, context, out)) is not None:
                    check_returned_nothing(returned)
        except ConfigError:
            raise
        except Exception as error:
            raise self.user_error(self._what("process_element"), error, position) from error
        self._emit(out, batch.timestamps)
        self._arm()

    def _fire(self, out: Collector, at: int, key: Any, domain: str) -> None:
        context = self._process
        assert context is not None, "open comes first"
        out.position = len(out.fired)
        out.fired.append(at)
        self.backend.set_current(key)
        context.has_key, context.current, context.timestamp, context.time_domain = True, key, at, domain
        try:
            check_returned_nothing(self._function.on_timer(at, context, out))
        except ConfigError:
            raise
        except Exception as error:
            what = self._what(f"on_timer({at}) of key {self.backend.values_of(key)}")
            raise self.user_error(what, error) from error

    def _fire_processing(self, at_ms: int) -> None:
        self._ready()
        out = Collector(self._schemas)
        for at, key in self._processing.due(at_ms):
            self._fire(out, at, key, "processing")
        self._emit(out, pa.array(out.fired, pa.int64()))
        self._arm()

    def _arm(self) -> None:
        self.fire_at(self._processing.earliest(), self._fire_processing)

    def _ready(self) -> ProcessContext:
        assert self._process is not None, "open comes first"
        self._process.now_ms = self.context.timers.now_ms()
        return self._process

    def _emit(self, out: Collector, times: pa.Int64Array | None) -> None:
        out.hand_over(self, function_name(self._function), times)


def _without_dictionaries(schema: pa.Schema) -> pa.Schema:
    """Names and types of the values."""
    types = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in schema]
    return pa.schema(list(zip(schema.names, types, strict=True)))

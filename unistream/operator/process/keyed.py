"""What operators with a user's function and keyed state share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any

import pyarrow as pa

from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.ids import CheckpointId
from unistream.base.limits import BATCH_ROWS_MAX, MAX_WATERMARK, MIN_WATERMARK
from unistream.model.snapshot import OperatorSnapshot, OperatorState
from unistream.model.state import StateDescriptor, check_declarations
from unistream.operator.common import RowOperator, check_methods, function_name, without_dictionaries
from unistream.operator.in_key_order import KEYED_INPUT, InKeyOrder
from unistream.operator.process.context import Clocks, declarations, declared
from unistream.operator.process.timer_table import (
    EVENT_TIMERS,
    PROCESSING_TIMERS,
    Piece,
    stored_timers,
    timer_table,
)
from unistream.port.operator import CommitPermit
from unistream.port.sorting import KeyedRows
from unistream.port.state import ForgetsKeys, KeyedStateBackend

KEYS_ROWS = BATCH_ROWS_MAX  # of keys that end together in a bounded job
CLOCKS = (EVENT_TIMERS, PROCESSING_TIMERS)
USER_METHODS = (
    "open",
    "process_element",
    "process_broadcast_element",
    "process_batch",
    "on_timer",
    "on_timers",
    "close",
)


class KeyedOperator(RowOperator, ABC):
    """What operators with a user's function and keyed state share: declarations, backend, timers.

    Args:
        key_schema: Names and types of the key columns; None: those of the first batch.

    Raises ConfigError: declarations of the function conflict, or one of its methods would never run.
    """

    uses_managed_memory = True

    def __init__(self, function: Any, keys: Sequence[str], key_schema: pa.Schema | None) -> None:
        check_declarations(function_name(function), declarations(function, StateDescriptor))
        check_methods(function, *USER_METHODS)
        self._function = function
        self._keys = list(keys)
        self._key_schema = None if key_schema is None else without_dictionaries(key_schema)
        self._backend: KeyedStateBackend | None = None
        self._armed: int | None = None
        self._in_batch = False
        self._paused_at: int | None = None  # in a bootstrap: the watermark of the end

    def declared_states(self) -> tuple[StateDescriptor, ...]:
        """Keyed state that is declared as attributes of the function."""
        return declared(self._function, StateDescriptor)

    def declared_keys(self) -> pa.Schema | None:
        """Names and types of the key columns, if they are known."""
        return self._key_schema

    @property
    def backend(self) -> KeyedStateBackend:
        """Keyed state; after `setup`."""
        if self._backend is None:
            self._backend = self.context.state
        return self._backend

    def initialize_state(self, state: OperatorState) -> None:
        self._configured(lambda: self._restore(state))

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        tables, key_schema = [], self._key_schema
        if key_schema is not None:  # otherwise there was no key, and no timer
            for name, timers in zip(CLOCKS, self._clocks(), strict=True):
                pieces = self._timer_pieces(timers, key_schema)
                if pieces is not None:
                    tables.append(timer_table(name, key_schema, self.context.max_parallelism, pieces))
        return OperatorSnapshot(state=self.backend.snapshot(checkpoint_id), timers=tuple(tables))

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        self.backend.notify_complete(permit.checkpoint_id)

    def close(self) -> None:
        """Closes the function, then its state."""
        try:
            self._function.close()
        finally:
            if self._backend is not None:
                self._backend.close()

    def batch_form(self) -> InKeyOrder:
        """See `port.batch`. Timers of processing time are not armed: there they fire at the end of a key."""
        form = copy(self)
        form._in_batch = True
        return InKeyOrder(form, self._keys, KEYS_ROWS)

    def process_keys(self, rows: KeyedRows) -> None:
        """See `port.batch.KeyedInput`."""
        self.process_batch(rows.batch, KEYED_INPUT)

    def end_keys(self) -> None:
        """See `port.batch.KeyedInput`. As Flink does, timers of both clocks fire at the end of a key."""
        if self._paused_at is not None:
            if self._paused_at > MIN_WATERMARK:
                self.process_watermark(self._paused_at)
            self._clock().watermark = MIN_WATERMARK
            return
        self.process_watermark(MAX_WATERMARK)
        self._fire_processing(MAX_WATERMARK)
        backend = self.backend
        assert isinstance(backend, ForgetsKeys), "bounded jobs have their state in memory"
        backend.forget_keys()
        self._clock().watermark = MIN_WATERMARK

    def pause_at(self, watermark: int) -> None:
        """See `port.batch.KeyedInput`. Timers of processing time stay: they are due when a stream goes on."""
        self._paused_at = watermark

    def keys_of(self, records: pa.RecordBatch) -> Sequence[Any]:
        """The key of each row."""
        missing = [key for key in self._keys if key not in records.schema.names]
        if missing:
            names = ", ".join(records.schema.names)
            raise self.user_error(f"there is no key column {missing[0]!r} among {names}")
        keys = records.select(self._keys)
        if self._key_schema is None:
            self._key_schema = without_dictionaries(keys.schema)
        return self.backend.keys_of(keys)

    def fire_at(self, earliest: int | None, fire: Callable[[int], None]) -> None:
        """Registers a timer of the task for our earliest one. `fire` may be called too often, but not
        late."""
        if earliest is None or self._in_batch or (self._armed is not None and self._armed <= earliest):
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
        for name, timers in zip(CLOCKS, self._clocks(), strict=True):
            for times, keys in stored_timers(state.keyed.get(name, []), self._keys):
                self._restore_timers(timers, times, keys)

    @abstractmethod
    def _clock(self) -> Clocks:
        """The current times of the function; after `open`."""

    @abstractmethod
    def _fire_processing(self, at_ms: int) -> None:
        """Fires timers of processing time that are due."""

    @abstractmethod
    def _clocks(self) -> tuple[Any, Any]:
        """Its timers, in the order of CLOCKS."""

    @abstractmethod
    def _timer_pieces(self, timers: Any, key_schema: pa.Schema) -> Iterator[Piece] | None: ...

    @abstractmethod
    def _restore_timers(self, timers: Any, times: pa.Int64Array, keys: pa.RecordBatch) -> None: ...

    def _configured(self, action: Any) -> None:
        """Runs `action`; a ConfigError in it names the operator."""
        try:
            action()
        except ConfigError as error:
            raise ConfigError(f"operator {self.context.name!r}: {error}") from error

    def _open_function(self, context: Any) -> None:
        try:
            self._function.open(context)
        except (UserCodeError, ConfigError):
            raise
        except Exception as error:
            raise self.user_error(self._what("open"), error) from error

    def _what(self, what: str) -> str:
        return f"{function_name(self._function)}, {what}"

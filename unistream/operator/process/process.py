"""User functions per row and key, with state and timers.

The function gets one row at a time, with the state of its key. Timers are keyed state: they are in every
snapshot, move with their key group, and fire in the order of their times (event timers when the watermark
passes them), and once if they are registered twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.base.limits import MIN_WATERMARK
from unistream.model.columns.arrow_layouts import taken
from unistream.model.columns.column_values import column_values
from unistream.model.elements import Batch
from unistream.operator.common import Row, RowErrors, check_defined, check_returned_nothing, function_name
from unistream.operator.process.context import Clocks, Collector, ProcessContext, row_schemas
from unistream.operator.process.guard import CallGuard
from unistream.operator.process.keyed import KeyedOperator
from unistream.operator.process.row_loop import KeyValues, RowsByKey, loop_over_keys, rows_of
from unistream.operator.process.timer_table import KeyedTimers, Piece, keyed_pieces
from unistream.operator.process.undo import Undo, UndoableTimers, check_undoable
from unistream.operator.process.user_metrics import UserMetrics
from unistream.port.dead_letters import OnError
from unistream.port.sorting import KeyedRows

C = TypeVar("C", bound=ProcessContext)


class KeyedFunction(Generic[C]):
    """What functions of a key have in common; `C` is their context."""

    def open(self, context: C) -> None:
        """Called once, before the first row. There is no current key."""

    def process_element(self, row: Row, context: C, out: Collector) -> None:
        """Processes a row, a dict by column. Results go to `out.emit`; nothing is returned."""
        raise TypeError(f"{type(self).__name__} must define process_element(row, context, out)")

    def on_timer(self, timestamp: int, context: C, out: Collector) -> None:
        """A timer of `context.key` for `timestamp` (ms) is due; `context.time_domain` is its clock."""

    def close(self) -> None:
        """Called once, at the end, also after a failure."""


class KeyedProcessFunction(KeyedFunction[ProcessContext]):
    """Subclass it, override `process_element` and, for timers, `on_timer`.

    One instance serves all keys of a subtask: keep only configuration in `self`, and values of a key in
    `context.state(...)`. Restored state is checked against state that is declared as class attributes.
    """


class KeyedProcessOperator(KeyedOperator):
    """Runs a `KeyedProcessFunction` over rows that are partitioned by `keys`.

    Args:
        returns: Schema of the main output; None: inferred from the first rows, then fixed.
        side_outputs: Schemas of side outputs by tag; those of others are inferred.
        key_schema: Names and types of the key columns; None: those of the first batch.
        on_error: For rows whose call of `process_element` fails; `returns` is needed then. State and timers
            are as they were before the call.
    """

    def __init__(
        self,
        function: KeyedFunction[Any],
        keys: Sequence[str],
        *,
        returns: pa.Schema | None = None,
        side_outputs: Mapping[str, pa.Schema] | None = None,
        key_schema: pa.Schema | None = None,
        on_error: OnError = "fail",
    ) -> None:
        check_defined(function, KeyedFunction, "process_element")
        super().__init__(function, keys, key_schema)
        self._schemas = row_schemas(returns, side_outputs)
        self.errors = RowErrors(on_error)
        self._guard = None if self.errors.fails else CallGuard(function, self.errors)
        for descriptor in () if self._guard is None else self.declared_states():
            check_undoable(descriptor)
        self._event, self._processing = (
            (KeyedTimers(), KeyedTimers())
            if self._guard is None
            else (UndoableTimers(self._guard.undo), UndoableTimers(self._guard.undo))
        )
        self._process: ProcessContext | None = None

    def open(self) -> None:
        self._process = self._make_context()
        self._process.holds_values = self._in_batch
        self._process.metrics = UserMetrics(self.context.metrics)
        self._configured(lambda: [self.backend.state(descriptor) for descriptor in self.declared_states()])
        self._open_function(self._process)
        self._arm()

    def process_batch(self, batch: Batch, input_index: int) -> None:
        rows = rows_of(batch, self.keys_of(batch.records))
        loop = loop_over_keys(batch.records.schema.names)
        with self._elements(batch) as (context, out):
            loop(rows, self._process_element, context, out, self.backend.set_current)

    def process_keys(self, rows: KeyedRows) -> None:
        """See `port.batch.KeyedInput`."""
        batch = rows.batch
        firsts = taken(batch.records, pa.array(rows.starts))
        sizes = np.diff(rows.starts, append=batch.num_rows).tolist()
        by_key = RowsByKey(batch.records, self._keys, firsts)
        of_keys = zip(self.keys_of(firsts), by_key.key_values, sizes, strict=True)
        if self._paused_at is not None and self._paused_at > MIN_WATERMARK and batch.timestamps is not None:
            self._process_in_time(batch, by_key, of_keys, self._paused_at)
            return
        loop, others, process = by_key.loop, by_key.others, self._process_element
        with self._elements(batch) as (context, out):
            for key, key_values, size in of_keys:
                self._enter(context, key)
                loop(islice(others, size), process, context, out, key_values)
                context.leave()

    def _process_in_time(
        self, batch: Batch, rows: RowsByKey, of_keys: Iterable[tuple[Any, KeyValues, int]], until: int
    ) -> None:
        """Processes rows in a bootstrap, where timers fire between the rows of a key, as in a stream whose
        rows come in the order of time, each behind the watermark just before it. Keys before this one have no
        more rows here, so their timers may fire as well. `of_keys`: each with the number of its rows."""
        assert batch.timestamps is not None, "there is a watermark"
        process, times = self._process_element, iter(column_values(batch.timestamps))
        with self._elements(batch) as (context, out):
            for key, key_values, size in of_keys:
                self._enter(context, key)
                for time, element in zip(islice(times, size), islice(rows.others, size), strict=True):
                    context.watermark = min(time - 1, until)
                    due = self._event.earliest()
                    if due is not None and due <= context.watermark:
                        context.leave()
                        self._emit(out, batch.timestamps)
                        out.clear()
                        self.process_watermark(context.watermark)
                        context.rows_come(out.place, batch.timestamps)
                        self._enter(context, key)
                    rows.loop((element,), process, context, out, key_values)
                context.leave()

    def _enter(self, context: ProcessContext, key: Any) -> None:
        self.backend.set_current(key)
        context.has_key, context.current, context.time_domain = True, key, None
        context.enter()

    @contextmanager
    def _elements(self, batch: Batch) -> Iterator[tuple[ProcessContext, Collector]]:
        """The context and the output for `process_element` of each row; emits what that has emitted."""
        context, out = self._ready(), Collector(self._schemas)
        context.rows_come(out.place, batch.timestamps)
        context.has_key, context.time_domain = True, None
        try:
            yield context, out
        except Exception as error:
            if isinstance(error, ConfigError) or context.time_domain is not None:  # a timer's says so itself
                raise
            raise self.user_error(self._what("process_element"), error, out.place.position) from error
        if self._guard is not None:
            self.send_failed(batch, self._guard.failed())
        self._emit(out, batch.timestamps)
        self._arm()

    @property
    def _process_element(self) -> Callable[[Row, Any, Collector], object]:
        return self._function.process_element if self._guard is None else self._guard.call

    def process_watermark(self, timestamp: int) -> None:
        out = Collector(self._schemas)
        self._ready().watermark = timestamp
        for at, key in self._event.due(timestamp):
            self._fire(out, at, key, "event")
        self._emit(out, pa.array(out.fired, pa.int64()))
        self._arm()

    def _clock(self) -> Clocks:
        return self._ready()

    def _make_context(self) -> ProcessContext:
        return ProcessContext(self.backend, self._event, self._processing, self._undo)

    @property
    def _undo(self) -> Undo | None:
        return None if self._guard is None else self._guard.undo

    def _clocks(self) -> tuple[KeyedTimers, KeyedTimers]:
        return self._event, self._processing

    def _timer_pieces(self, timers: KeyedTimers, key_schema: pa.Schema) -> Iterator[Piece] | None:
        return keyed_pieces(timers, self.backend, key_schema)

    def _restore_timers(self, timers: KeyedTimers, times: pa.Int64Array, keys: pa.RecordBatch) -> None:
        timers.restore(times.to_pylist(), self.keys_of(keys))

    def _fire(self, out: Collector, at: int, key: Any, domain: str) -> None:
        context = self._process
        assert context is not None, "open comes first"
        out.place.position = len(out.fired)
        out.fired.append(at)
        self.backend.set_current(key)
        context.timer_comes(at)
        context.has_key, context.current, context.time_domain = True, key, domain
        context.enter()
        try:
            check_returned_nothing(self._function.on_timer(at, context, out))
            context.leave()
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
        out.flush(self, function_name(self._function), times)

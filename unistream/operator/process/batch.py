"""User functions per batch, with the rows grouped by key and state in columns.

A function is called once for each batch, with its distinct keys and the key of each row, and reads and writes
the state of these keys as Arrow arrays: no Python runs per row or per key. Timers are columns as well
(`timer_columns`): registered for many keys at once, and due as a batch of (time, key).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.limits import BATCH_ROWS_MAX
from unistream.model.columns.key_codes import distinct
from unistream.model.elements import Batch
from unistream.model.key_groups import canonical_keys
from unistream.operator import common
from unistream.operator.process.batch_context import BatchContext
from unistream.operator.process.context import Clocks, SideSchemas
from unistream.operator.process.keyed import KeyedOperator
from unistream.operator.process.timer_columns import TimerColumns, Times
from unistream.operator.process.timer_table import Piece, column_pieces
from unistream.operator.process.user_metrics import UserMetrics
from unistream.port.source import check_tag


class KeyedBatch:
    """Rows and their keys.

    Attributes:
        records: n rows.
        timestamps: Event times of the rows, ms, or None.
        keys: The key columns of the k distinct keys, in the order of their first rows.
        groups: Row -> position in `keys`; n integers from 0 to k - 1.
    """

    def __init__(self, batch: Batch, key_names: Sequence[str]) -> None:
        self.records = batch.records
        self.timestamps = batch.timestamps
        self.keys, self.groups = distinct(canonical_keys(batch.records.select(list(key_names)), key_names))

    def columns(self) -> Iterable[pa.RecordBatch | pa.Array | None]:
        """The Arrow data that a function gets."""
        return self.records, self.timestamps, self.keys


class TimerBatch:
    """Timers that are due, in the order of their times, and their keys.

    Attributes:
        times: Times of the timers: n integers, ms.
        time_domain: ``"event"`` or ``"processing"``.
        keys: The key columns of the k distinct keys, in the order of their first timers.
        groups: Timer -> position in `keys`; n integers from 0 to k - 1.
    """

    def __init__(self, times: pa.Int64Array, keys: pa.RecordBatch, time_domain: str) -> None:
        self.times = times
        self.time_domain = time_domain
        self.keys, self.groups = distinct(keys)

    def columns(self) -> Iterable[pa.RecordBatch | pa.Array | None]:
        """The Arrow data that a function gets."""
        return self.times, self.keys


class BatchCollector:
    """Collects the batches that a function emits. The function may change the numpy arrays of which they were
    made.

    Args:
        given: The function's input, which is emitted without a copy.
    """

    def __init__(self, given: KeyedBatch | TimerBatch | None = None) -> None:
        self.batches: list[tuple[str | None, Batch]] = []
        self._known = frozenset() if given is None else common.addresses(given.columns())

    def emit(self, records: pa.RecordBatch, timestamps: pa.Array | None = None) -> None:
        """Emits rows on the main output; `timestamps`: their event times, int64 ms."""
        self.emit_side(None, records, timestamps)

    def emit_side(self, tag: str | None, records: pa.RecordBatch, timestamps: pa.Array | None = None) -> None:
        """Emits rows on the side output `tag`."""
        if tag is not None:
            check_tag(tag, "emit_side")
        if not isinstance(records, pa.RecordBatch):
            raise TypeError(f"emit takes a pyarrow.RecordBatch, not {type(records).__name__}")
        if timestamps is not None and len(timestamps) != records.num_rows:
            raise ValueError(f"{len(timestamps)} event times for {records.num_rows} rows")
        times = None if timestamps is None else common.owned_array(timestamps, self._known)
        self.batches.append((tag, Batch(common.owned(records, self._known), times)))


class KeyedBatchFunction:
    """Subclass it and override `process_batch` and, for timers, `on_timers`.

    >>> import numpy as np, pyarrow as pa, pyarrow.compute as pc, unistream as us
    >>> class Count(us.KeyedBatchFunction):
    ...     seen = us.ValueStateDescriptor("seen", pa.int64())
    ...     def process_batch(self, batch, context, out):
    ...         seen = context.column(self.seen)
    ...         new = np.bincount(batch.groups, minlength=batch.keys.num_rows)
    ...         total = pc.add(seen.get().fill_null(0), pa.array(new))
    ...         seen.put(total)
    ...         out.emit(batch.keys.append_column("seen", total))

    With timers, here the number of rows per key after a second of event time without any:

    >>> class Quiet(Count):
    ...     until = us.ValueStateDescriptor("until", pa.int64())
    ...     def process_batch(self, batch, context, out):
    ...         seen, until = context.column(self.seen), context.column(self.until)
    ...         new = np.bincount(batch.groups, minlength=batch.keys.num_rows)
    ...         seen.put(pc.add(seen.get().fill_null(0), pa.array(new)))
    ...         last = np.zeros(batch.keys.num_rows, np.int64)
    ...         np.maximum.at(last, batch.groups, batch.timestamps.to_numpy())
    ...         context.delete_event_time_timers(until.get())
    ...         until.put(last + 1_000)
    ...         context.register_event_time_timers(last + 1_000)
    ...     def on_timers(self, timers, context, out):
    ...         seen, until = context.column(self.seen), context.column(self.until)
    ...         out.emit(timers.keys.append_column("seen", seen.get()), timers.times)
    ...         nothing = pa.nulls(timers.keys.num_rows, pa.int64())
    ...         seen.put(nothing)
    ...         until.put(nothing)
    >>> from unistream.operator.process.batch import KeyedBatchOperator
    >>> from unistream.testing.harness.operators import OperatorHarness
    >>> with OperatorHarness(KeyedBatchOperator(Quiet(), ["user"])) as quiet:
    ...     quiet.process({"user": ["ann", "bob", "ann"]}, timestamps=[0, 100, 500])
    ...     quiet.watermark(1_200)
    ...     print(quiet.rows(), quiet.timestamps())
    [{'user': 'bob', 'seen': 1}] [1100]
    """

    def open(self, context: BatchContext) -> None:
        """Called once, before the first batch."""

    def process_batch(self, batch: KeyedBatch, context: BatchContext, out: BatchCollector) -> None:
        """Processes a batch of rows, with its keys."""
        raise TypeError(f"{type(self).__name__} must define process_batch(batch, context, out)")

    def on_timers(self, timers: TimerBatch, context: BatchContext, out: BatchCollector) -> None:
        """Timers of one clock are due, of any keys; state columns are those of `timers.keys`. A key may have
        several timers. Timers that are registered here, and are due, come with the next call."""

    def close(self) -> None:
        """Called once, at the end, also after a failure."""


class KeyedBatchOperator(KeyedOperator):
    """Runs a `KeyedBatchFunction` over rows that are partitioned by `keys`.

    Args:
        returns: Schema of the main output; None: that of the first emitted batch.
        side_outputs: Schemas of side outputs by tag; others may have any.
        key_schema: Names and types of the key columns; None: those of the first batch.

    Raises:
        ConfigError: the function has pickled state.
    """

    def __init__(
        self,
        function: KeyedBatchFunction,
        keys: Sequence[str],
        *,
        returns: pa.Schema | None = None,
        side_outputs: SideSchemas | None = None,
        key_schema: pa.Schema | None = None,
    ) -> None:
        common.check_defined(function, KeyedBatchFunction, "process_batch")
        super().__init__(function, keys, key_schema)
        for descriptor in self.declared_states():
            if descriptor.options.pickled:
                raise ConfigError(
                    f"state {descriptor.name!r} of {common.function_name(function)} is pickled; functions "
                    "per batch need state of Arrow types: declare a type, or use a function per row"
                )
        self._returns = returns
        self._side_outputs = dict(side_outputs or {})
        self._batch_context: BatchContext | None = None

    def open(self) -> None:
        self._configured(lambda: [self.backend.column(descriptor) for descriptor in self.declared_states()])
        self._open_function(self._known_context())
        self._arm()

    def process_batch(self, batch: Batch, input_index: int) -> None:
        context = self._context_now()
        grouped = KeyedBatch(batch, self._keys)
        context.enter(self.keys_of(grouped.keys), self._plain(grouped.keys))
        self._run("process_batch", self._function.process_batch, grouped)
        self._arm()

    def process_watermark(self, timestamp: int) -> None:
        context = self._context_now()
        context.watermark = timestamp
        self._fire(context.event.due(timestamp, BATCH_ROWS_MAX), "event")
        self._arm()

    def _clock(self) -> Clocks:
        return self._known_context()

    def _clocks(self) -> tuple[TimerColumns, TimerColumns]:
        context = self._known_context()
        return context.event, context.processing

    def _timer_pieces(self, timers: TimerColumns, key_schema: pa.Schema) -> Iterator[Piece] | None:
        return column_pieces(timers)

    def _restore_timers(self, timers: TimerColumns, times: pa.Int64Array, keys: pa.RecordBatch) -> None:
        if keys.num_rows:
            self.keys_of(keys.slice(0, 1))  # raises ConfigError for keys of other types
            timers.register(times.to_numpy(), self._plain(keys))

    def _run(self, what: str, function: Any, given: KeyedBatch | TimerBatch) -> None:
        """Calls `function` for the keys that were entered, and emits its batches."""
        context, out = self._known_context(), BatchCollector(given)
        try:
            common.check_returned_nothing(function(given, context, out))
        except (UserCodeError, ConfigError):
            raise
        except Exception as error:
            raise self.user_error(self._what(what), error) from error
        finally:
            context.enter(None, None)
        for tag, emitted in out.batches:
            if tag is not None:
                self.output.emit_side(
                    tag, self._side(f"{self._what(what)} emitted on side output {tag!r}", tag, emitted)
                )
                continue
            if self._returns is None:
                self._returns = emitted.records.schema
            records = common.conformed(self, f"{self._what(what)} emitted", emitted.records, self._returns)
            self.output.emit(Batch(records, emitted.timestamps))

    def _side(self, what: str, tag: str, emitted: Batch) -> Batch:
        schema = self._side_outputs.get(tag)
        if schema is None:
            return emitted
        return Batch(common.conformed(self, what, emitted.records, schema), emitted.timestamps)

    def _fire(self, due: Iterable[tuple[Times, pa.RecordBatch]], domain: str) -> None:
        context = self._known_context()
        for times, keys in due:
            timers = TimerBatch(pa.array(times), keys, domain)
            context.enter(self.keys_of(timers.keys), timers.keys)
            self._run("on_timers", self._function.on_timers, timers)

    def _fire_processing(self, at_ms: int) -> None:
        self._fire(self._context_now().processing.due(at_ms, BATCH_ROWS_MAX), "processing")
        self._arm()

    def _arm(self) -> None:
        self.fire_at(self._known_context().processing.earliest(), self._fire_processing)

    def _plain(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        """Key columns in the operator's key types."""
        schema = self._key_schema
        assert schema is not None, "keys_of comes first"
        if keys.schema.equals(schema):
            return keys
        columns = [column.cast(field.type) for column, field in zip(keys.columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _context_now(self) -> BatchContext:
        context = self._known_context()
        context.now_ms = self.context.timers.now_ms()
        return context

    def _known_context(self) -> BatchContext:
        if self._batch_context is None:
            self._batch_context = BatchContext(self.backend)
            self._batch_context.metrics = UserMetrics(self.context.metrics)
        return self._batch_context

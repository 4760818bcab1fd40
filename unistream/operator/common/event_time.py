"""Event times from a column, and watermarks that are assigned after the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.config import AUTO_WATERMARK_INTERVAL, parse_duration_ms
from unistream.base.errors import ConfigError, UserCodeError
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.model.columns.event_time import event_times, first_null, is_event_time
from unistream.model.elements import Batch
from unistream.model.watermarks import WatermarkStrategy
from unistream.operator.common.base import BaseOperator
from unistream.operator.common.row_errors import RowErrors
from unistream.operator.common.row_operator import ForwardsRows, computes_anything
from unistream.port.dead_letters import OnError
from unistream.port.projection import UsedColumns


def timestamps_of(operator: BaseOperator, records: pa.RecordBatch, column: str) -> pa.Int64Array:
    """Event times in ms of the rows of `records` (see `unistream.model.columns.event_time`).

    Raises:
        UserCodeError: there is no such column, its type is not a time, or a value is null or out of range.
    """
    index = records.schema.get_field_index(column)
    if index < 0:
        raise operator.user_error(
            f"there is no timestamp column {column!r} among {', '.join(records.schema.names)}"
        )
    values = records.column(index)
    if not is_event_time(values.type):
        raise operator.user_error(f"the timestamp column {column!r} is {values.type}, not a time")
    row = first_null(values)
    if row is not None:
        raise operator.user_error(f"the timestamp column {column!r} is null", row=row)
    try:
        return event_times(values)
    except pa.ArrowInvalid as error:
        problem = f"the timestamp column {column!r} is out of the range of int64 milliseconds; it"
        raise operator.user_error(problem, error) from error


class AssignTimestampsAndWatermarks(ForwardsRows):
    """Sets event times from a column, and emits watermarks every `pipeline.auto-watermark-interval`.

    As in Flink, they replace those of its input, which are of other times: only MAX_WATERMARK passes.
    Idleness passes, too (not in Flink): no rows come, and this operator detects none itself.

    Args:
        only_at_end: It emits none, so there is only the one at the end of the input.
        on_error: For rows without an event time, or with one that is out of range.
    """

    def __init__(
        self, strategy: WatermarkStrategy, *, only_at_end: bool = False, on_error: OnError = "fail"
    ) -> None:
        if strategy.timestamp_column is None:
            raise ConfigError("assign_timestamps_and_watermarks needs a strategy with a timestamp column")
        if strategy.idle_ms is not None:
            raise ConfigError("only sources detect idleness: pass with_idleness to from_source")
        self.forwards_watermarks = False
        self._strategy = strategy
        self._bound_ms = None if only_at_end else strategy.out_of_orderness_ms
        self._column = strategy.timestamp_column
        self._newest: int | None = None
        self._emitted = MIN_WATERMARK
        self._interval_ms = 0
        self._on_error: OnError = on_error
        self.errors = RowErrors(on_error)

    @property
    def column(self) -> str:
        """The name of the column with the event times."""
        return self._column

    def used_columns(
        self, inputs: Sequence[pa.Schema], wanted: Mapping[str | None, UsedColumns]
    ) -> Sequence[UsedColumns]:
        """See `unistream.port.projection`."""
        return [self.with_letters(frozenset({self._column}), wanted)]

    def batch_form(self) -> AssignTimestampsAndWatermarks:
        """See `port.batch`: the only watermark of a bounded job is that of the end."""
        return AssignTimestampsAndWatermarks(self._strategy, only_at_end=True, on_error=self._on_error)

    def open(self) -> None:
        if self._bound_ms is None:
            return
        default = AUTO_WATERMARK_INTERVAL.default or "200 ms"
        self._interval_ms = parse_duration_ms(self.context.config.get(AUTO_WATERMARK_INTERVAL.key, default))
        self._schedule()

    def process_batch(self, batch: Batch, input_index: int) -> None:
        try:
            timestamps = self._times(batch)
        except UserCodeError as error:
            if not self.errors.takes(error) or not computes_anything(self._times, batch):
                raise
            batch, parts = self.apart(batch, error, self._times)
            timestamps = pa.concat_arrays([pa.array([], pa.int64()), *parts])
            if not len(timestamps):
                return
        newest = pc.max(timestamps).as_py()
        self._newest = newest if self._newest is None else max(self._newest, newest)
        self.output.emit(Batch(batch.records, timestamps))

    def process_watermark(self, timestamp: int) -> None:
        if timestamp == MAX_WATERMARK:
            self.output.emit_watermark(timestamp)

    def process_watermark_status(self, idle: bool) -> None:
        self._advance()  # consumers ignore what an idle task emits
        self.output.emit_watermark_status(idle)

    def _times(self, batch: Batch) -> pa.Int64Array:
        return timestamps_of(self, batch.records, self._column)

    def _schedule(self) -> None:
        timers = self.context.timers
        timers.register(timers.now_ms() + max(1, self._interval_ms), self._on_interval)

    def _on_interval(self, at_ms: int) -> None:
        self._advance()
        self._schedule()

    def _advance(self) -> None:
        bound = self._bound_ms
        if self._newest is not None and bound is not None and self._newest - bound - 1 > self._emitted:
            self._emitted = self._newest - bound - 1
            self.output.emit_watermark(self._emitted)

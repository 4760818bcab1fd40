"""Filters of a backfill: rows of the history that are needed, and results that are in the range."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from unistream.model.columns.event_time import event_times
from unistream.model.elements import Batch
from unistream.model.time_range import TimeRange
from unistream.operator.common import BaseOperator

OUTSIDE_METRIC: Final = "rowsOutsideRange"


class KeepEventTimes(BaseOperator):
    """Rows with an event time in the range. Rows without one pass: they are not known to be outside."""

    def __init__(self, range_: TimeRange) -> None:
        self._range = range_

    def process_batch(self, batch: Batch, input_index: int) -> None:
        times = batch.timestamps
        if times is None:
            self.output.emit(batch)
            return
        inside = pc.and_(pc.greater_equal(times, self._range.begin_ms), pc.less(times, self._range.end_ms))
        kept = inside.true_count
        if kept == batch.num_rows:
            self.output.emit(batch)
        elif kept:
            self.output.emit(batch.filter(inside))


class KeepResults(BaseOperator):
    """Rows whose `column`, a timestamp, is in the range. The others are counted; a null is outside."""

    def __init__(self, column: str, range_: TimeRange) -> None:
        self._column = column
        self._range = range_

    def process_batch(self, batch: Batch, input_index: int) -> None:
        records = batch.records
        if self._column not in records.schema.names:
            raise self.user_error(
                f"rows have no column {self._column!r} with their time, only "
                f"{', '.join(records.schema.names)}"
            )
        times = records.column(self._column)
        if not pa.types.is_timestamp(times.type):
            raise self.user_error(f"column {self._column!r} is {times.type}; it has to be a timestamp")
        at = event_times(pc.fill_null(times, pa.scalar(0, times.type)))  # not of all times there are ns
        within = pc.and_(pc.greater_equal(at, self._range.begin_ms), pc.less(at, self._range.end_ms))
        inside = pc.and_(within, times.is_valid())
        kept = inside.true_count
        if kept < batch.num_rows:
            self.context.metrics.add(OUTSIDE_METRIC, batch.num_rows - kept)
        if kept == batch.num_rows:
            self.output.emit(batch)
        elif kept:
            self.output.emit(batch.filter(inside))

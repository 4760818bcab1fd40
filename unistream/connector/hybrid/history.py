"""The history of a hybrid source, alone: its rows in the columns of the hybrid source, without a fence."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from unistream.base.ids import CheckpointId
from unistream.model.graph import SourceInfo
from unistream.model.messages import Split
from unistream.model.time_range import TimeRange
from unistream.port.source import (
    Polled,
    ReaderContext,
    Rows,
    Source,
    SourceReader,
    WithEventTimeSpan,
    WithTimeRange,
)


class HistorySource:
    """The bounded source `history`, with its columns in the order of `schema`."""

    def __init__(self, history: Source, schema: pa.Schema) -> None:
        self._history = history
        self._schema = schema

    @property
    def name(self) -> str:
        return self._history.name

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def info(self) -> SourceInfo:
        return self._history.info()

    def event_time_span(self, column: str) -> tuple[int, int] | None:
        """See `unistream.port.source.WithEventTimeSpan`."""
        if not isinstance(self._history, WithEventTimeSpan):
            return None
        return self._history.event_time_span(column)

    def within(self, column: str, range_: TimeRange) -> HistorySource:
        """See `unistream.port.source.WithTimeRange`."""
        if not isinstance(self._history, WithTimeRange):
            return self
        return HistorySource(self._history.within(column, range_), self._schema)

    def create_reader(self) -> SourceReader:
        return _Reordered(self._history.create_reader(), self._schema)


class _Reordered:
    def __init__(self, reader: SourceReader, schema: pa.Schema) -> None:
        self._reader = reader
        self._schema = schema

    def open(self, context: ReaderContext) -> None:
        self._reader.open(context)

    def add_splits(self, splits: Sequence[Split]) -> None:
        self._reader.add_splits(splits)

    def no_more_splits(self) -> None:
        self._reader.no_more_splits()

    def poll(self) -> Polled:
        polled = self._reader.poll()
        if not isinstance(polled, Rows):
            return polled
        columns = [polled.records.column(name) for name in self._schema.names]
        records = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return Rows(polled.split_id, records, polled.timestamps, polled.dead_letters)

    def snapshot(self) -> Sequence[Split]:
        return self._reader.snapshot()

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        self._reader.notify_checkpoint_complete(checkpoint_id)

    def close(self) -> None:
        self._reader.close()

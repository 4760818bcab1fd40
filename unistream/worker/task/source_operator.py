"""Head operator of a source vertex: a reader's rows with event times and watermarks.

Its state is the reader's splits, each with the position to read next; restored ones are given to the
reader before any new one.
"""

from __future__ import annotations

import msgspec
import pyarrow.compute as pc

from unistream.base.config import AUTO_WATERMARK_INTERVAL, Configuration
from unistream.base.errors import CorruptSnapshot
from unistream.base.ids import CheckpointId
from unistream.model.elements import Batch, Watermark, WatermarkStatus
from unistream.model.messages import Split
from unistream.model.snapshot import ListMode, ListState, OperatorSnapshot, OperatorState
from unistream.port.operator import CommitPermit, OperatorContext, Output, SourceOperatorSpec
from unistream.port.source import (
    DEAD_LETTERS_TAG,
    Exhausted,
    Idle,
    ReaderContext,
    Rows,
    SourceReader,
    SplitFinished,
)
from unistream.worker.task.environment import SourceLinks
from unistream.worker.task.event_time import event_times
from unistream.worker.task.split_watermarks import SplitWatermarks

SPLITS_STATE = "splits"


class SourceOperator:
    """`port.operator.Operator` without inputs; the task calls `poll` instead of `process_batch`.

    Args:
        links: How the reader wakes the task and asks the master for splits.
    """

    forwards_watermarks = True

    def __init__(self, spec: SourceOperatorSpec, links: SourceLinks) -> None:
        self._spec = spec
        self._links = links
        self._watermarks = SplitWatermarks(spec.watermarks)
        self._reader: SourceReader | None = None
        self._restored: list[Split] = []
        self._given: set[str] = set()
        self._exhausted = False
        self._resume_at_ms: int | None = None
        self._waiting = False

    # --- life cycle -------------------------------------------------------------------------------

    def setup(self, context: OperatorContext, output: Output) -> None:
        self._context = context
        self._output = output

    def initialize_state(self, state: OperatorState) -> None:
        try:
            self._restored = [
                msgspec.msgpack.decode(item, type=Split) for item in state.lists.get(SPLITS_STATE, ())
            ]
        except msgspec.MsgspecError as error:
            raise CorruptSnapshot(f"the source's splits cannot be read: {error}") from error

    def open(self) -> None:
        context = self._context
        self._reader = self._spec.source.create_reader()
        self._reader.open(
            ReaderContext(
                index=context.index,
                parallelism=context.parallelism,
                wake=self._links.wake,
                request_split=self._links.request_split,
                metrics=context.metrics,
            )
        )
        if self._restored:
            self.add_splits(self._restored)
        interval_ms = Configuration(context.config).get(AUTO_WATERMARK_INTERVAL)
        self._interval_ms = max(1, interval_ms)
        self._next_interval()

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    # --- rows -------------------------------------------------------------------------------------

    @property
    def is_exhausted(self) -> bool:
        """Everything was read and nothing will come."""
        return self._exhausted

    @property
    def resume_at_ms(self) -> int | None:
        """After `poll` had nothing: when to ask again at the latest (monotonic), None = after a wake."""
        return self._resume_at_ms

    def add_splits(self, splits: list[Split]) -> None:
        """More to read. A message that comes twice changes nothing: no split is read twice."""
        assert self._reader is not None, "open comes first"
        now_ms = self._context.clock.monotonic_ms()
        new = [split for split in splits if split.id not in self._given]
        self._given.update(split.id for split in new)
        for split in new:
            self._watermarks.add(split.id, now_ms)
        self._reader.add_splits(new)
        self._waiting = False

    def no_more_splits(self) -> None:
        """Nothing but what was assigned."""
        assert self._reader is not None, "open comes first"
        self._reader.no_more_splits()
        self._waiting = False

    def poll(self) -> bool:
        """One piece of work. False: there was nothing to do (`resume_at_ms`) or nothing is left."""
        if self._exhausted or self._is_waiting():
            return False
        assert self._reader is not None, "open comes first"
        match self._reader.poll():
            case Rows() as rows:
                self._emit(rows)
            case SplitFinished(split_id=split_id):
                self._watermarks.remove(split_id)
            case Idle(retry_ms=retry_ms):
                return self._wait(retry_ms)
            case Exhausted():
                self._exhausted = True
                return False
        return True

    def _wait(self, retry_ms: int | None) -> bool:
        """True: it woke while it was polled, so ask again at once."""
        if self._links.take_wake():
            return True
        now_ms = self._context.clock.monotonic_ms()
        self._resume_at_ms = None if retry_ms is None else now_ms + retry_ms
        self._waiting = True
        return False

    def _is_waiting(self) -> bool:
        if not self._waiting:
            return False
        due = self._resume_at_ms is not None and self._context.clock.monotonic_ms() >= self._resume_at_ms
        if due or self._links.take_wake():
            self._waiting = False
        return self._waiting

    def _emit(self, rows: Rows) -> None:
        timestamps = rows.timestamps
        column = self._spec.watermarks.timestamp_column
        if rows.records.num_rows and column is not None:
            timestamps = event_times(rows.records, column, rows.split_id)
        if rows.records.num_rows and timestamps is not None:
            newest = pc.max(timestamps).as_py()
            self._say(self._watermarks.on_rows(rows.split_id, newest, self._context.clock.monotonic_ms()))
        self._links.counters.records_in += rows.records.num_rows
        self._output.emit(Batch(rows.records, timestamps))
        if rows.dead_letters is not None and rows.dead_letters.num_rows:
            self._context.metrics.add("dead_letters", rows.dead_letters.num_rows)
            self._output.emit_side(DEAD_LETTERS_TAG, Batch(rows.dead_letters))

    # --- watermarks -------------------------------------------------------------------------------

    def _next_interval(self) -> None:
        timers = self._context.timers
        timers.register(timers.now_ms() + self._interval_ms, self._on_interval)

    def _on_interval(self, _at_ms: int) -> None:
        self._say(self._watermarks.on_interval(self._context.clock.monotonic_ms()))
        self._next_interval()

    def _say(self, signals: list[WatermarkStatus] | list[Watermark | WatermarkStatus]) -> None:
        for signal in signals:
            if isinstance(signal, Watermark):
                self._links.counters.watermark = signal.timestamp
                self._output.emit_watermark(signal.timestamp)
            else:
                self._output.emit_watermark_status(signal.idle)

    # --- checkpoints ------------------------------------------------------------------------------

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        if self._reader is None:
            return OperatorSnapshot()
        items = tuple(msgspec.msgpack.encode(split) for split in self._reader.snapshot())
        return OperatorSnapshot(lists={SPLITS_STATE: ListState(ListMode.SPLIT, items)})

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        if self._reader is not None:
            self._reader.notify_checkpoint_complete(permit.checkpoint_id)

    # --- a source has no inputs -------------------------------------------------------------------

    def process_batch(self, batch: Batch, input_index: int) -> None:
        raise AssertionError("a source has no input")

    def process_watermark(self, timestamp: int) -> None:
        """The end of all data; the task forwards it."""

    def end_input(self, input_index: int) -> None:
        """A source has no input."""

    def finish(self) -> None:
        """Whatever it had is out."""

    def prepare_snapshot_pre_barrier(self, checkpoint_id: CheckpointId) -> None:
        """Rows leave as they are read."""

    def process_watermark_status(self, idle: bool) -> None:
        """Has no input; its own status is made where rows are read."""

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None:
        """A reader's positions are in the next snapshot."""

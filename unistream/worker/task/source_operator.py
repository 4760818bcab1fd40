"""Head operator of a source vertex: a reader's rows with event times and watermarks.

Its state is the reader's splits, each with the position to read next; restored ones are given to the
reader before any new one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.config import AUTO_WATERMARK_INTERVAL, Configuration
from unistream.base.errors import UNDECODABLE, ConfigError, CorruptSnapshot, UserCodeError
from unistream.base.ids import CheckpointId
from unistream.model.columns import event_time
from unistream.model.counter_names import out_of_order_counter
from unistream.model.elements import Batch, Watermark, WatermarkStatus
from unistream.model.graph import HISTORY, SourceInfo
from unistream.model.messages import AssignSplits, Split
from unistream.model.positions import POSITIONS_MAX
from unistream.model.snapshot import ListMode, OperatorListState, OperatorSnapshot, OperatorState
from unistream.model.splits import natural_key
from unistream.operator.common import BaseOperator
from unistream.port.operator import CommitPermit, SourceOperatorSpec
from unistream.port.source import (
    DEAD_LETTERS_TAG,
    Exhausted,
    Idle,
    PhasedReader,
    ReaderContext,
    Rows,
    SourceReader,
    SplitFinished,
)
from unistream.worker.task.environment import TaskCounters
from unistream.worker.task.split_watermarks import SplitWatermarks

SPLITS_STATE = "splits"
SPLITS_NAMED_MAX = 3  # in counters of rows that are out of order; one shows what is wrong


class SourceOperator(BaseOperator):
    """`port.operator.Operator` without inputs; the task calls `poll` instead of `process_batch`.

    Args:
        info: Of the source, as in the job graph.
        wake_task: From any thread: polling may return rows.
        request_split: Requests a split of a phase from the master; see `SplitRequested`.
        had_ended: All was read before the snapshot that it is restored from (`TaskRestore.data_ended`): there
            is no reader, and its state stays as it is.

    Attributes:
        is_exhausted: Everything was read and no split will be added.
        resume_at_ms: After a `poll` that returned False: when to poll again (monotonic); None: after a wake.
    """

    def __init__(
        self,
        spec: SourceOperatorSpec,
        info: SourceInfo,
        *,
        wake_task: Callable[[], None],
        request_split: Callable[[int, int | None], None],
        counters: TaskCounters,
        had_ended: bool = False,
    ) -> None:
        self._spec = spec
        self._wake_task = wake_task
        self._request_split = request_split
        self._counters = counters
        self._woken = threading.Event()
        self._phases = info.phases or (info,)
        first = self._phases[HISTORY]
        self._watermarks = SplitWatermarks(spec.watermarks, bounded=first.bounded, in_order=first.in_order)
        self._phase = HISTORY
        self._held: list[Split] = []  # restored ones of the live phase, while there is history
        self._reader: SourceReader | None = None
        self._restored: list[Split] = []
        self._given: set[str] = set()
        self._out_of_order: set[str] = set()
        self.is_exhausted = had_ended
        self.resume_at_ms: int | None = None
        self._waiting = False

    # --- life cycle -------------------------------------------------------------------------------

    def initialize_state(self, state: OperatorState) -> None:
        try:
            self._restored = [
                msgspec.msgpack.decode(item, type=Split) for item in state.lists.get(SPLITS_STATE, ())
            ]
        except UNDECODABLE as error:
            raise CorruptSnapshot(f"the source's splits cannot be read: {error}") from error

    def open(self) -> None:
        if self.is_exhausted:
            return
        context = self.context
        self._reader = self._spec.source.create_reader()
        self._reader.open(
            ReaderContext(
                index=context.index,
                parallelism=context.parallelism,
                wake=self._wake,
                request_split=lambda: self._request_split(self._phase, None),
                metrics=context.metrics,
                request_phase=self._request_split,
            )
        )
        self._add_restored()
        self._interval_ms = max(1, Configuration(context.config).get(AUTO_WATERMARK_INTERVAL))
        self._next_interval()

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    # --- rows -------------------------------------------------------------------------------------

    def assign(self, message: AssignSplits) -> None:
        """What the master has assigned. What it repeats, also of a former phase, is ignored."""
        if message.phase < self._phase:
            assert not message.splits or self._given >= {s.id for s in message.splits}, "history comes first"
            return
        if message.phase > HISTORY:
            self._begin_phase(message.phase, message.newest)
        if message.splits:
            self.add_splits(list(message.splits))
        self.limit_watermark(message.watermark_limit)
        if message.no_more:
            self.no_more_splits()

    def add_splits(self, splits: list[Split]) -> None:
        """Adds splits to read. Those of a repeated message are ignored."""
        assert self._reader is not None, "open comes first"
        now_ms = self.context.clock.monotonic_ms()
        new = [split for split in splits if split.id not in self._given]
        self._given.update(split.id for split in new)
        for split in new:
            self._watermarks.add(split, now_ms)
        self._reader.add_splits(new)
        self._waiting = False

    def _add_restored(self) -> None:
        """All of the history comes first. A snapshot has both when some tasks had restarted alone."""
        restored = sorted(self._restored, key=lambda split: natural_key(split.id))
        if not restored:
            return
        first = min(split.phase for split in restored)
        self._held = [split for split in restored if split.phase > first]
        if first > HISTORY:
            self._begin_phase(first, None)
        self.add_splits([split for split in restored if split.phase == first])

    def _begin_phase(self, phase: int, newest: int | None) -> None:
        assert isinstance(self._reader, PhasedReader), "its source has phases"
        if phase > self._phase:
            self._phase = phase
            info = self._phases[phase]
            self._watermarks.begin_phase(bounded=info.bounded, in_order=info.in_order)
        self._reader.begin_phase(phase, newest)
        held, self._held = self._held, []
        if held:
            self.add_splits(held)

    def limit_watermark(self, limit: int) -> None:
        """See `AssignSplits.watermark_limit`."""
        self._watermarks.limit(limit)

    def no_more_splits(self) -> None:
        assert self._reader is not None, "open comes first"
        if len(self._phases) > 1:
            assert isinstance(self._reader, PhasedReader), "its source has phases"
            self._reader.no_more_splits_of(self._phase)
        else:
            self._reader.no_more_splits()
        self._waiting = False

    def poll(self) -> bool:
        """One piece of work. False: there is nothing to do (see `resume_at_ms`), or it is exhausted."""
        if self.is_exhausted or self._is_waiting():
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
                self.is_exhausted = True
                return False
        return True

    def _wait(self, retry_ms: int | None) -> bool:
        """True: there was a wake during the poll, so poll again at once."""
        if self._take_wake():
            return True
        now_ms = self.context.clock.monotonic_ms()
        self.resume_at_ms = None if retry_ms is None else now_ms + retry_ms
        self._waiting = True
        return False

    def _is_waiting(self) -> bool:
        if not self._waiting:
            return False
        due = self.resume_at_ms is not None and self.context.clock.monotonic_ms() >= self.resume_at_ms
        if due or self._take_wake():
            self._waiting = False
        return self._waiting

    def _wake(self) -> None:
        """Makes the task poll again; called from any thread."""
        self._woken.set()
        self._wake_task()

    def _take_wake(self) -> bool:
        woken = self._woken.is_set()
        if woken:
            self._woken.clear()
        return woken

    def _emit(self, rows: Rows) -> None:
        timestamps = rows.timestamps
        column = self._spec.watermarks.timestamp_column
        if rows.records.num_rows and column is not None:
            timestamps = event_times(rows.records, column, rows.split_id)
        if rows.records.num_rows and timestamps is not None:
            newest = pc.max(timestamps).as_py()
            if self._phases[self._phase].in_order:
                self._count_out_of_order(rows.split_id, timestamps)
            self._emit_signals(
                self._watermarks.on_rows(rows.split_id, newest, self.context.clock.monotonic_ms())
            )
        self._counters.records_in += rows.records.num_rows
        self.output.emit(Batch(rows.records, timestamps))
        if rows.dead_letters is not None and rows.dead_letters.num_rows:
            self.context.metrics.add("dead_letters", rows.dead_letters.num_rows)
            self.output.emit_side(DEAD_LETTERS_TAG, Batch(rows.dead_letters))

    def _count_out_of_order(self, split_id: str, timestamps: pa.Int64Array) -> None:
        """Rows behind those before this batch, against what the source is declared to be."""
        earliest = self._watermarks.earliest_in_order()
        if earliest is None or pc.min(timestamps).as_py() >= earliest:
            return
        found = pc.sum(pc.less(timestamps, earliest)).as_py()
        self.context.metrics.add(out_of_order_counter(self._blamed(split_id)), found)

    def _blamed(self, split_id: str) -> str:
        """The split to name: of many, only the first ones."""
        if len(self._out_of_order) < SPLITS_NAMED_MAX:
            self._out_of_order.add(split_id)
        return split_id if split_id in self._out_of_order else "other splits"

    # --- watermarks -------------------------------------------------------------------------------

    def _next_interval(self) -> None:
        timers = self.context.timers
        timers.register(timers.now_ms() + self._interval_ms, self._on_interval)

    def _on_interval(self, _at_ms: int) -> None:
        self._emit_signals(self._watermarks.on_interval(self.context.clock.monotonic_ms()))
        self._next_interval()

    def _emit_signals(self, signals: list[WatermarkStatus] | list[Watermark | WatermarkStatus]) -> None:
        for signal in signals:
            if isinstance(signal, Watermark):
                self._counters.watermark = signal.timestamp
                self.output.emit_watermark(signal.timestamp)
            else:
                self.output.emit_watermark_status(signal.idle)

    # --- checkpoints ------------------------------------------------------------------------------

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        splits = self._restored if self._reader is None else [*self._reader.snapshot(), *self._held]
        items = tuple(msgspec.msgpack.encode(split) for split in splits)
        return OperatorSnapshot(
            lists={SPLITS_STATE: OperatorListState(ListMode.SPLIT, items)}, positions=self._recorded(splits)
        )

    def _recorded(self, splits: Sequence[Split]) -> dict[str, tuple[str, int]]:
        """See `TaskSnapshot.positions`. Without all of them none is recorded."""
        found = {split.id: split.recorded for split in splits if split.recorded is not None}
        return found if self._phases[-1].recorded_as and len(found) <= POSITIONS_MAX else {}

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        if self._reader is not None:
            self._reader.notify_checkpoint_complete(permit.checkpoint_id)

    def process_batch(self, batch: Batch, input_index: int) -> None:
        raise AssertionError("a source has no input")


def event_times(records: pa.RecordBatch, column: str, split_id: str) -> pa.Int64Array:
    """The event time of each row in ms, from `column`.

    Raises:
        ConfigError: there is no such column, or it is not a time.
        UserCodeError: a row has no event time, or one that is out of range.
    """
    index = records.schema.get_field_index(column)
    if index < 0:
        raise ConfigError(
            f"the timestamp column {column!r} is not in the rows; they have {', '.join(records.schema.names)}"
        )
    values = records.column(index)
    if not event_time.is_event_time(values.type):
        raise ConfigError(
            f"the timestamp column {column!r} is {values.type}; "
            "it must be int64 milliseconds, a timestamp or a date"
        )
    row = event_time.first_null(values)
    if row is not None:
        raise UserCodeError(
            f"the timestamp column {column!r} is null in row {row} of a batch of split {split_id!r}. "
            f"{event_time.ASSIGN_LATER}"
        )
    try:
        return event_time.event_times(values)
    except pa.ArrowInvalid as error:
        raise UserCodeError(
            f"the timestamp column {column!r} ({values.type}) has a time that is out of the range of int64 "
            f"milliseconds in a batch of split {split_id!r}: {error}. {event_time.ASSIGN_LATER}"
        ) from error

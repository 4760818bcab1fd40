"""The source operator: event times, watermarks, splits as state, dead letters."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from unistream.base.compiling import PROCESS
from unistream.base.errors import ConfigError, CorruptSnapshot, UserCodeError
from unistream.base.ids import AttemptId, CheckpointId, JobId, LeaderEpoch, LineageId, OperatorUid, VertexId
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.model.elements import Batch, Watermark, WatermarkStatus
from unistream.model.graph import SourceInfo
from unistream.model.messages import Split
from unistream.model.snapshot import OperatorState
from unistream.model.watermarks import WatermarkStrategy
from unistream.port.operator import OperatorContext, SourceOperatorSpec
from unistream.port.source import Exhausted, Idle, Polled, ReaderContext, Rows, SplitFinished
from unistream.state.hashmap import HashMapStateBackend
from unistream.testing.harness.operators import CollectedOutput, CountingMetrics, ManualClock, ManualTimers
from unistream.worker.task import SourceOperator
from unistream.worker.task.environment import TaskCounters
from unistream.worker.task.source_operator import event_times
from unistream.worker.task.split_watermarks import SplitWatermarks

BOUNDED = WatermarkStrategy.for_bounded_out_of_orderness(10).with_timestamp_column("at")


class _Reader:
    def __init__(self) -> None:
        self.polls: list[Polled] = []
        self.added: list[str] = []
        self.last = False

    def open(self, context: ReaderContext) -> None:
        self.context = context

    def add_splits(self, splits: list[Split]) -> None:
        self.added += [split.id for split in splits]

    def no_more_splits(self) -> None:
        self.last = True

    def poll(self) -> Polled:
        return self.polls.pop(0) if self.polls else Idle()

    def snapshot(self) -> list[Split]:
        return [Split(id=i, data=b"next") for i in self.added]

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class _Source:
    name = "s"
    schema = pa.schema([("at", pa.int64())])

    def __init__(self, reader: _Reader | None) -> None:
        self.reader = reader or _Reader()

    def info(self) -> SourceInfo:
        return SourceInfo(connector="s", options={}, bounded=True, pull=False)

    def create_reader(self) -> _Reader:
        return self.reader


class _Opened:
    def __init__(
        self,
        strategy: WatermarkStrategy = BOUNDED,
        state: OperatorState | None = None,
        info: SourceInfo | None = None,
        reader: _Reader | None = None,
    ) -> None:
        source = _Source(reader)
        self.reader = source.reader
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.metrics = CountingMetrics()
        self.output = CollectedOutput()
        self.counters = TaskCounters()
        self.wakes = 0
        self.requests: list[tuple[int, int | None]] = []
        self.operator = SourceOperator(
            SourceOperatorSpec(source=source, watermarks=strategy),
            info or source.info(),
            wake_task=self._woken,
            request_split=lambda *requested: self.requests.append(requested),
            counters=self.counters,
        )
        self.operator.setup(self._context(), self.output)
        self.operator.initialize_state(state or OperatorState())
        self.operator.open()
        self.operator.limit_watermark(MAX_WATERMARK)

    def _woken(self) -> None:
        self.wakes += 1

    def _context(self) -> OperatorContext:
        return OperatorContext(
            job=JobId("0" * 32),
            job_name="j",
            lineage=LineageId("l"),
            epoch=LeaderEpoch(1),
            attempt=AttemptId(JobId("0" * 32), VertexId("v"), 0, 0),
            uid=OperatorUid("s"),
            name="s",
            index=0,
            parallelism=1,
            max_parallelism=128,
            key_groups=(0, 127),
            restored=False,
            checkpointing=True,
            clock=self.clock,
            timers=self.timers,
            metrics=self.metrics,
            make_state=lambda: HashMapStateBackend(
                key_groups=(0, 127), max_parallelism=128, clock=self.clock
            ),
            report_commit=lambda _checkpoint, _rows, _version: None,
        )

    def rows(self, split: str, *times: int) -> None:
        self.reader.polls.append(Rows(split, pa.record_batch({"at": pa.array(times, pa.int64())})))
        assert self.operator.poll()

    def said(self) -> list[Any]:
        return [e for e in self.output.elements if not isinstance(e, Batch)]


# --- event times ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        pytest.param(pa.array([5, -5], pa.int64()), [5, -5], id="int64 is milliseconds"),
        pytest.param(pa.array([5], pa.timestamp("s")), [5_000], id="seconds"),
        pytest.param(pa.array([5], pa.timestamp("ms")), [5], id="milliseconds"),
        pytest.param(pa.array([1_999, -1], pa.timestamp("us")), [1, -1], id="microseconds are rounded down"),
        pytest.param(pa.array([-1], pa.timestamp("ns")), [-1], id="nanoseconds are rounded down"),
        pytest.param(
            pa.array([datetime(1970, 1, 2)], pa.timestamp("ms", "America/New_York")),  # noqa: DTZ001
            [86_400_000],
            id="with zone: stored as UTC",
        ),
        pytest.param(pa.array([date(1970, 1, 2)], pa.date32()), [86_400_000], id="date32"),
        pytest.param(pa.array([date(1970, 1, 2)], pa.date64()), [86_400_000], id="date64"),
    ],
)
def test_event_times(column: pa.Array, expected: list[int]) -> None:
    sliced = pa.concat_arrays([column[:1], column]).slice(1)
    times = event_times(pa.record_batch({"at": sliced}), "at", "s")
    assert times.type == pa.int64()
    assert times.to_pylist() == expected


@pytest.mark.parametrize(
    ("records", "error", "says"),
    [
        pytest.param(
            pa.record_batch({"x": [1]}), ConfigError, "'at' is not in the rows; they have x", id="missing"
        ),
        pytest.param(pa.record_batch({"at": ["1"]}), ConfigError, "'at' is string", id="not a time"),
        pytest.param(
            pa.record_batch({"at": pa.array([1, None], pa.int64())}),
            UserCodeError,
            "'at' is null in row 1 of a batch of split 'p-3'",
            id="null",
        ),
    ],
)
def test_rows_without_an_event_time(records: pa.RecordBatch, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        event_times(records, "at", "p-3")


def test_the_sources_own_times_are_used_when_no_column_is_named() -> None:
    opened = _Opened(WatermarkStrategy.for_monotonous_timestamps())
    times = pa.array([7], pa.int64())
    opened.reader.polls.append(Rows("s", pa.record_batch({"x": [1]}), times))
    assert opened.operator.poll()
    assert opened.output.elements[0].timestamps == times


# --- watermarks -----------------------------------------------------------------------------------


def split(name: str, min_timestamp: int | None = None) -> Split:
    return Split(id=name, data=b"", min_timestamp=min_timestamp)


def all_assigned(machine: SplitWatermarks) -> SplitWatermarks:
    machine.limit(MAX_WATERMARK)
    return machine


def test_watermarks_are_said_at_the_interval_and_the_slowest_split_decides() -> None:
    opened = _Opened()
    opened.operator.add_splits([Split(id="a", data=b""), Split(id="b", data=b"")])
    opened.rows("a", 100, 90)
    opened.timers.advance(200)
    assert opened.said() == []
    opened.rows("b", 50)
    assert opened.said() == []
    opened.timers.advance(400)
    assert opened.said() == [Watermark(39)]
    opened.reader.polls.append(SplitFinished("b"))
    assert opened.operator.poll()
    opened.timers.advance(600)
    assert opened.said() == [Watermark(39), Watermark(89)]
    assert opened.counters.watermark == 89


def test_an_idle_split_does_not_hold_back_and_all_idle_is_said_once() -> None:
    machine = all_assigned(SplitWatermarks(BOUNDED.with_idleness(100)))
    machine.add(split("a"), 0)
    machine.add(split("b"), 0)
    assert machine.on_rows("a", 50, 60) == []
    assert machine.on_interval(100) == [Watermark(39)]
    assert machine.on_interval(160) == [WatermarkStatus(idle=True)]
    assert machine.on_interval(300) == []
    assert machine.on_rows("b", 20, 310) == [WatermarkStatus(idle=False)]
    assert machine.on_interval(320) == []
    assert machine.on_rows("b", 70, 330) == []
    assert machine.on_interval(340) == [Watermark(59)]


def test_a_subtask_without_splits_is_idle_after_a_while_until_it_gets_one() -> None:
    machine = all_assigned(SplitWatermarks(BOUNDED.with_idleness(100)))
    assert machine.on_interval(0) == []
    assert machine.on_interval(99) == []
    assert machine.on_interval(100) == [WatermarkStatus(idle=True)]
    assert machine.on_interval(500) == []
    machine.add(split("a"), 510)
    assert machine.on_interval(520) == [WatermarkStatus(idle=False)]
    assert machine.on_rows("a", 50, 530) == []
    assert machine.on_interval(540) == [Watermark(39)]
    machine.remove("a")
    assert machine.on_interval(550) == []
    assert machine.on_interval(650) == [WatermarkStatus(idle=True)]


def test_without_idleness_a_subtask_without_splits_is_never_idle() -> None:
    machine = all_assigned(SplitWatermarks(BOUNDED))
    assert [machine.on_interval(now_ms) for now_ms in (0, 10**9)] == [[], []]


def test_a_new_split_never_takes_the_watermark_back() -> None:
    machine = all_assigned(SplitWatermarks(BOUNDED))
    machine.on_rows("a", 100, 0)
    assert machine.on_interval(0) == [Watermark(89)]
    machine.add(split("b"), 1)
    machine.on_rows("b", 20, 1)
    assert machine.on_interval(2) == []
    assert machine.watermark == 89


def test_splits_that_are_not_read_hold_back_the_watermark() -> None:
    machine = SplitWatermarks(BOUNDED)
    machine.add(split("a"), 0)
    machine.on_rows("a", 100, 0)
    assert machine.on_interval(0) == [], "the master has not said yet what else there is"
    machine.limit(MIN_WATERMARK)
    assert machine.on_interval(1) == [], "a split that is not assigned may have any rows"
    machine.limit(59)
    assert machine.on_interval(2) == [Watermark(59)], "one that is not assigned begins at 60"
    machine.add(split("b", 80), 3)
    machine.limit(MAX_WATERMARK)
    assert machine.on_interval(3) == [Watermark(79)], "one that is not read begins at 80"
    machine.on_rows("b", 85, 4)
    assert machine.on_interval(4) == [], "a row may be 10 older than the newest, but not than 80"
    machine.add(split("c"), 5)
    machine.remove("b")
    machine.on_rows("a", 200, 5)
    assert machine.on_interval(5) == [], "c may have any rows"
    machine.remove("c")
    assert machine.on_interval(6) == [Watermark(189)]


def test_a_split_that_is_read_within_one_interval_advances_the_watermark() -> None:
    """A file of a growing table is read at once, and the next one may come in an hour."""
    machine = SplitWatermarks(BOUNDED)
    machine.limit(60)
    machine.add(split("a", 20), 0)
    machine.on_rows("a", 100, 0)
    machine.remove("a")
    assert machine.on_interval(1) == [Watermark(60)], "one that is not assigned begins at 61"
    machine.limit(MAX_WATERMARK)
    assert machine.on_interval(2) == [Watermark(89)]
    machine.add(split("b", 95), 3)
    assert machine.on_interval(3) == [Watermark(94)]


def test_finished_splits_say_nothing_while_another_is_read() -> None:
    machine = all_assigned(SplitWatermarks(BOUNDED))
    machine.add(split("a"), 0)
    machine.on_rows("a", 100, 0)
    machine.remove("a")
    machine.add(split("b", 40), 0)
    assert machine.on_interval(1) == [Watermark(39)], "its rows are not late if that can be helped"


def test_splits_of_a_source_in_order_are_one_sequence() -> None:
    machine = all_assigned(SplitWatermarks(BOUNDED, bounded=True, in_order=True))
    assert machine.earliest_in_order() is None
    machine.add(split("a"), 0)
    machine.add(split("b"), 0)
    assert machine.on_interval(0) == [], "nothing was read"
    machine.on_rows("a", 100, 0)
    assert machine.on_interval(1) == [Watermark(89)], "b, which is not read, has no older rows"
    machine.remove("a")
    machine.on_rows("b", 95, 2)
    assert machine.on_interval(2) == []
    machine.on_rows("b", 120, 3)
    assert machine.on_interval(3) == [Watermark(109)]
    assert machine.earliest_in_order() == 110


@pytest.mark.parametrize(
    ("bounded", "limit", "idle"),
    [
        pytest.param(False, MAX_WATERMARK, True, id="more subtasks than splits"),
        pytest.param(False, 50, False, id="it may still get a split"),
        pytest.param(True, MAX_WATERMARK, False, id="a bounded source is not idle: the rest is to come"),
    ],
)
def test_idleness_without_splits(bounded: bool, limit: int, idle: bool) -> None:
    machine = SplitWatermarks(BOUNDED.with_idleness(100), bounded=bounded)
    machine.limit(limit)
    machine.on_interval(0)
    assert machine.on_interval(1_000) == ([WatermarkStatus(idle=True)] if idle else [])


def test_a_file_of_an_unbounded_source_is_not_idle_however_long_it_takes_to_open_it() -> None:
    """Another subtask is ahead meanwhile, and would make its rows late."""
    machine = all_assigned(SplitWatermarks(BOUNDED.with_idleness(100)))
    machine.add(Split(id="file", data=b"", size=5, min_timestamp=50), 0)
    assert machine.on_interval(10_000) == [Watermark(49)]
    machine.on_rows("file", 90, 10_001)
    assert machine.on_interval(20_000) == [Watermark(79)]
    machine.remove("file")
    assert machine.on_interval(20_001) == []
    assert machine.on_interval(20_101) == [WatermarkStatus(idle=True)], "nothing is left to read"


def test_a_split_of_a_bounded_source_is_not_idle_while_it_is_not_read() -> None:
    machine = all_assigned(SplitWatermarks(BOUNDED.with_idleness(100), bounded=True))
    machine.add(split("a"), 0)
    machine.add(split("b", 30), 0)
    machine.on_rows("a", 100, 0)
    assert machine.on_interval(1_000) == [Watermark(29)]


def test_rows_against_a_declared_order_are_counted_by_split() -> None:
    info = SourceInfo(connector="s", options={}, bounded=True, pull=True, in_order=True)
    opened = _Opened(info=info)
    opened.operator.add_splits([split("a"), split("b")])
    opened.rows("a", 100, 40)  # in one batch, so no watermark is between them
    opened.rows("a", 95, 90, 89, 1)  # 10 older than 100 is allowed
    opened.rows("b", 120, 89)
    assert opened.metrics.counts == {"numRecordsOutOfOrder.a": 2, "numRecordsOutOfOrder.b": 1}


def test_restored_splits_of_a_source_in_order_are_read_in_order() -> None:
    names = ["part-10:0-9", "part-9:0-9", "part-9:10-19"]  # of readers with other numbers of splits
    items = [msgspec.msgpack.encode(Split(id=name, data=b"")) for name in names]
    opened = _Opened(state=OperatorState(checkpoint_id=CheckpointId(1), lists={"splits": items}))
    assert opened.reader.added == ["part-9:0-9", "part-9:10-19", "part-10:0-9"]


# --- splits ---------------------------------------------------------------------------------------


def test_splits_survive_a_restore_and_come_before_new_ones() -> None:
    first = _Opened()
    first.operator.add_splits([Split(id="a", data=b""), Split(id="b", data=b"")])
    stored = first.operator.snapshot_state(CheckpointId(1)).lists["splits"].items
    second = _Opened(state=OperatorState(checkpoint_id=CheckpointId(1), lists={"splits": list(stored)}))
    assert second.reader.added == ["a", "b"]
    second.operator.add_splits([Split(id="c", data=b"")])
    assert second.reader.added == ["a", "b", "c"]
    decoded = [msgspec.msgpack.decode(item, type=Split) for item in stored]
    assert decoded == [Split(id="a", data=b"next"), Split(id="b", data=b"next")]


def test_a_split_that_comes_again_is_not_read_again() -> None:
    opened = _Opened()
    for _ in range(2):  # messages are delivered at least once
        opened.operator.add_splits([Split(id="a", data=b"")])
    assert opened.reader.added == ["a"]


def test_splits_that_cannot_be_read_are_not_skipped() -> None:
    with pytest.raises(CorruptSnapshot):
        _Opened(state=OperatorState(checkpoint_id=CheckpointId(1), lists={"splits": [b"\x01"]}))


def test_dead_letters_go_to_their_side_output() -> None:
    opened = _Opened()
    dead = pa.record_batch({"reason": ["not JSON"]})
    empty = pa.record_batch({"at": pa.array([], pa.int64())})
    opened.reader.polls.append(Rows("s", empty, dead_letters=dead))
    assert opened.operator.poll()
    assert [b.records for b in opened.output.side["dead-letters"]] == [dead]
    assert opened.output.elements == []


# --- waiting --------------------------------------------------------------------------------------


def test_an_idle_reader_is_asked_again_after_a_wake_or_its_pause() -> None:
    opened = _Opened()
    opened.reader.polls = [Idle(retry_ms=50), Idle(), Exhausted()]
    assert not opened.operator.poll()
    assert opened.operator.resume_at_ms == 50
    assert not opened.operator.poll()
    assert len(opened.reader.polls) == 2
    opened.clock.now_ms = 50
    assert not opened.operator.poll()
    assert len(opened.reader.polls) == 1
    assert opened.operator.resume_at_ms is None
    opened.reader.context.wake()
    assert opened.wakes == 1
    assert not opened.operator.poll()
    assert opened.operator.is_exhausted


def test_counters_say_that_machine_code_is_made() -> None:
    counters = TaskCounters(user={"in.pendingRecords": 3})
    PROCESS.begin()
    try:
        assert counters.to_metrics(0, 0).user == {"in.pendingRecords": 3, "compiling": 1}
    finally:
        PROCESS.end()
    assert counters.to_metrics(0, 0).user == {"in.pendingRecords": 3}

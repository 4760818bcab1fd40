"""The source operator with a source of two phases: what its watermark and its state are around the switch."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from tests.unit.worker.task.test_source import _Opened, _Reader
from unistream.base.ids import AttemptId, CheckpointId, JobId, VertexId
from unistream.base.limits import MAX_WATERMARK
from unistream.model.elements import Watermark, WatermarkStatus
from unistream.model.graph import HISTORY, LIVE, SourceInfo
from unistream.model.messages import AssignSplits, Split
from unistream.model.snapshot import OperatorState
from unistream.model.watermarks import WatermarkStrategy
from unistream.port.source import Idle, Polled, Rows, SplitFinished
from unistream.worker.task.source_operator import SPLITS_STATE
from unistream.worker.task.split_watermarks import SplitWatermarks

TIMES = WatermarkStrategy.for_bounded_out_of_orderness(10).with_timestamp_column("at")
ATTEMPT = AttemptId(JobId("0" * 32), VertexId("v"), 0, 0)


class _Phased(_Reader):
    def __init__(self) -> None:
        super().__init__()
        self.begun: list[tuple[int, int | None]] = []
        self.over: list[int] = []

    def begin_phase(self, phase: int, newest: int | None) -> None:
        if not self.begun:
            self.added = []
        self.begun.append((phase, newest))

    def no_more_splits_of(self, phase: int) -> None:
        self.over.append(phase)

    def poll(self) -> Polled:
        polled = super().poll()
        if isinstance(polled, Idle) and self.over == [HISTORY]:
            self.over.append(-1)
            self.added = []
            self.context.request_phase(LIVE, 100)
        return polled


def one(*, bounded: bool, in_order: bool = False) -> SourceInfo:
    return SourceInfo(connector="s", options={}, bounded=bounded, pull=False, in_order=in_order)


def opened(
    *restored: Split,
    strategy: WatermarkStrategy = TIMES,
    in_order: bool = False,
) -> tuple[_Opened, _Phased]:
    info = SourceInfo(
        connector="s",
        options={},
        bounded=False,
        pull=False,
        phases=(one(bounded=True, in_order=in_order), one(bounded=False)),
    )
    items = tuple(msgspec.msgpack.encode(split) for split in restored)
    state = OperatorState(lists={SPLITS_STATE: items}) if restored else None
    reader = _Phased()
    return _Opened(strategy, state, info, reader), reader


def assign(made: _Opened, phase: int, *names: str, newest: int | None = None, no_more: bool = False) -> None:
    splits = tuple(Split(id=name, data=b"", phase=phase) for name in names)
    made.operator.assign(
        AssignSplits(attempt=ATTEMPT, splits=splits, phase=phase, newest=newest, no_more=no_more)
    )


def history_read(made: _Opened, reader: _Phased) -> None:
    assign(made, HISTORY, no_more=True)
    reader.polls.append(SplitFinished("h"))
    while made.operator.poll():
        pass


def test_a_subtask_that_has_read_its_history_keeps_its_watermark_until_the_live_phase() -> None:
    made, reader = opened()
    assign(made, HISTORY, "h")
    made.rows("h", 100)
    made.timers.advance(200)
    assert made.said() == [Watermark(89)]
    history_read(made, reader)
    assert made.requests == [(LIVE, 100)]
    made.timers.advance(400)
    made.timers.advance(10_000)
    assert made.said() == [Watermark(89)], "if it was idle, the first live rows of others would overtake it"
    assign(made, LIVE, "t", newest=120)
    assert reader.begun == [(LIVE, 120)]
    made.timers.advance(10_200)
    assert made.said()[1:] == [], "a live split without rows allows no more"
    made.rows("t", 150)
    made.timers.advance(10_400)
    assert made.said()[1:] == [Watermark(139)]
    made.reader.polls.append(SplitFinished("t"))
    made.operator.poll()
    made.timers.advance(90_000)
    assert made.said()[2:] == [], "the strategy has no idleness, so a live subtask without splits is not idle"


def test_idleness_counts_in_the_live_phase_only() -> None:
    made, reader = opened(strategy=TIMES.with_idleness(1_000))
    assign(made, HISTORY, "h")
    for at in range(200, 5_000, 200):
        made.timers.advance(at)
    assert made.said() == [], "history that is not read is certain to come"
    history_read(made, reader)
    assign(made, LIVE, "t")
    for at in range(5_000, 7_000, 200):
        made.timers.advance(at)
    assert made.said() == [WatermarkStatus(idle=True)]


def test_a_history_in_order_does_not_make_the_live_splits_one_sequence() -> None:
    made, reader = opened(in_order=True)
    assign(made, HISTORY, "h")
    made.rows("h", 100)
    history_read(made, reader)
    assign(made, LIVE, "t-0", "t-1")
    made.rows("t-0", 500)
    made.timers.advance(200)
    assert Watermark(489) not in made.said(), "t-1 holds it back"
    made.rows("t-1", 300)
    made.timers.advance(400)
    assert made.said()[-1] == Watermark(289)


def test_repeated_messages_change_nothing() -> None:
    made, reader = opened()
    assign(made, HISTORY, "h")
    history_read(made, reader)
    assign(made, LIVE, "t")
    assign(made, HISTORY, "h", no_more=True)
    assign(made, LIVE, "t")
    assert reader.added == ["t"]
    assert LIVE not in reader.over, "the end of the history is not the end of the live source"
    assign(made, LIVE, no_more=True)
    assert reader.over[-1] == LIVE


def test_restored_live_splits_are_read_at_once() -> None:
    made, reader = opened(Split(id="t", data=b"", phase=LIVE))
    assert (reader.begun, reader.added) == ([(LIVE, None)], ["t"])
    made.rows("t", 150)
    made.timers.advance(200)
    assert made.said() == [Watermark(139)]


def test_restored_live_splits_wait_for_restored_history() -> None:
    made, reader = opened(Split(id="t", data=b"", phase=LIVE), Split(id="h", data=b"", phase=HISTORY))
    assert (reader.begun, reader.added) == ([], ["h"])
    saved = made.operator.snapshot_state(CheckpointId(1)).lists[SPLITS_STATE].items
    assert {msgspec.msgpack.decode(item, type=Split).id for item in saved} == {"h", "t"}
    made.rows("h", 100)
    history_read(made, reader)
    assign(made, LIVE, newest=100)
    assert (reader.begun, reader.added) == ([(LIVE, 100)], ["t"])
    saved = made.operator.snapshot_state(CheckpointId(2)).lists[SPLITS_STATE].items
    assert [msgspec.msgpack.decode(item, type=Split).id for item in saved] == ["t"]


def test_a_split_without_rows_holds_nothing_back() -> None:
    machine = SplitWatermarks(TIMES, bounded=True)
    machine.limit(MAX_WATERMARK)
    machine.add(Split(id="end", data=b"", min_timestamp=MAX_WATERMARK), 0)
    assert machine.on_interval(0) == []
    machine.add(Split(id="h", data=b""), 0)
    machine.on_rows("h", 100, 0)
    assert machine.on_interval(1) == [Watermark(89)]


def test_the_watermark_never_goes_back_at_the_switch() -> None:
    machine = SplitWatermarks(TIMES, bounded=True)
    machine.limit(MAX_WATERMARK)
    machine.add(Split(id="h", data=b""), 0)
    machine.on_rows("h", 100, 0)
    assert machine.on_interval(0) == [Watermark(89)]
    machine.begin_phase(bounded=False, in_order=False)
    machine.limit(MAX_WATERMARK)
    machine.add(Split(id="t", data=b""), 2)
    assert machine.on_rows("t", 50, 2) == []
    assert machine.on_interval(3) == []
    assert machine.watermark == 89


def test_rows_are_not_of_a_split_that_holds_back() -> None:
    """What the master has not assigned of the history limits the watermark until the phase is over."""
    made, _ = opened()
    made.operator.assign(
        AssignSplits(attempt=ATTEMPT, splits=(Split(id="h", data=b"", phase=HISTORY),), watermark_limit=49)
    )
    made.reader.polls.append(Rows("h", pa.record_batch({"at": pa.array([100], pa.int64())})))
    made.operator.poll()
    made.timers.advance(200)
    assert made.said() == [Watermark(49)]

"""What has fired moves with its keys: subtasks of one snapshot need not be equally far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec
import pyarrow as pa
import pytest

from unistream.base.errors import CorruptSnapshot
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.model.key_groups import key_groups, subtask_of_key_group
from unistream.model.metric_names import LATE_RECORDS_DROPPED
from unistream.model.snapshot import ListMode, OperatorListState, OperatorSnapshot
from unistream.operator.window import (
    FIRED,
    AggregatePlan,
    SlidingEventTimeWindows,
    WindowAggregate,
    Windows,
    count,
)
from unistream.testing.harness import OperatorHarness, restore_state

GROUPS = 128
KEYS = list(range(40))
GROUP_OF = dict(
    zip(KEYS, key_groups(pa.record_batch({"k": pa.array(KEYS)}), ["k"], GROUPS).tolist(), strict=True)
)
PLAN = AggregatePlan(["k"], {"n": count()})
SHORT, LONG = SlidingEventTimeWindows.of(30, 10), SlidingEventTimeWindows.of(500, 20, 7)
Window = tuple[int, int, int]  # key, start, rows


def windows_of(rows: Iterable[tuple[int, int]], windows: Windows) -> Counter[Window]:
    """Each window of rows (key, time) once, with their number."""
    counted: Counter[tuple[int, int]] = Counter()
    for key, time in rows:
        for end in windows.ends_containing(windows.pane_end(time)):
            counted[key, end - windows.size_ms] += 1
    return Counter((key, start, number) for (key, start), number in counted.items())


class Subtasks:
    """All subtasks of a window operator, each with a watermark of its own. Their input are partials."""

    def __init__(
        self, windows: Windows, parallelism: int, snapshots: Sequence[OperatorSnapshot] = ()
    ) -> None:
        self._parallelism = parallelism
        self._harnesses = []
        for index in range(parallelism):
            state = restore_state(snapshots, 1, index=index, parallelism=parallelism) if snapshots else None
            operator = WindowAggregate(PLAN, windows)
            harness = OperatorHarness(operator, state=state, index=index, parallelism=parallelism)
            self._harnesses.append(harness.open())

    def process(self, rows: Sequence[tuple[int, int]]) -> None:
        for index, harness in enumerate(self._harnesses):
            own = [
                (key, time)
                for key, time in rows
                if subtask_of_key_group(GROUPS, self._parallelism, GROUP_OF[key]) == index
            ]
            if own:
                records = pa.RecordBatch.from_pydict({"k": pa.array([key for key, _ in own])})
                harness.process(PLAN.lift(records), [time for _, time in own])

    def watermarks(self, *times: int) -> None:
        for harness, time in zip(self._harnesses, times, strict=True):
            harness.watermark(time)

    def snapshots(self) -> list[OperatorSnapshot]:
        return [harness.snapshot(1) for harness in self._harnesses]

    def results(self) -> Counter[Window]:
        found: Counter[Window] = Counter()
        for harness in self._harnesses:
            found.update(
                (row["k"], round(row["window_start"].timestamp() * 1000), row["n"]) for row in harness.rows()
            )
            harness.clear()
        return found

    @property
    def late(self) -> int:
        return sum(harness.metrics.counts[LATE_RECORDS_DROPPED] for harness in self._harnesses)


@pytest.mark.parametrize("windows", [SHORT, LONG], ids=str)
@pytest.mark.parametrize(
    ("first", "second", "third"),
    [
        pytest.param((90, 30), (190, 190), 2, id="at the same parallelism"),
        pytest.param((90, 30), (150, 110, 120), 3, id="at a higher one"),
        pytest.param((90, 30, 60), (140,), 2, id="at a lower one, then at a higher one"),
        pytest.param((30, 90), (70, 40, 99), 1, id="again before the others have caught up"),
        pytest.param((90, 30), (MIN_WATERMARK,) * 3, 2, id="again without a watermark since"),
        pytest.param((99, MIN_WATERMARK), (20, 100), 3, id="from one without a watermark"),
    ],
)
def test_each_window_fires_once_after_restores_from_subtasks_that_differ(
    windows: Windows, first: Sequence[int], second: Sequence[int], third: int
) -> None:
    """Rows of 0 to 99 ms until the watermarks `first`, then those to 199 ms, at last the others."""
    found: Counter[Window] = Counter()
    snapshots: list[OperatorSnapshot] = []
    rows = [(key, time) for time in range(0, 300, 10) for key in KEYS]
    for start, watermarks in ((0, first), (100, second), (200, [MAX_WATERMARK] * third)):
        subtasks = Subtasks(windows, len(watermarks), snapshots)
        subtasks.process([(key, time) for key, time in rows if start <= time < start + 100])
        subtasks.watermarks(*watermarks)
        snapshots = subtasks.snapshots()
        found += subtasks.results()
        assert subtasks.late == 0
    assert found == windows_of(rows, windows)
    assert all(FIRED not in snapshot.keyed for snapshot in snapshots)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_row_whose_windows_have_fired_for_its_key_is_late_and_others_are_not(parallelism: int) -> None:
    before = Subtasks(SHORT, 2)
    before.watermarks(100, 40)
    after = Subtasks(SHORT, parallelism, before.snapshots())
    behind = [key for key in KEYS if GROUP_OF[key] >= GROUPS // 2]  # of the second subtask
    after.process([(key, 50) for key in behind])
    after.process([(key, 50) for key in KEYS])
    after.watermarks(*[MAX_WATERMARK] * parallelism)
    assert after.results() == windows_of([(key, 50) for key in behind] * 2, SHORT)
    assert after.late == len(KEYS) - len(behind)


# --- snapshots of older versions: a list with one time, of which each subtask gets one copy -----------


def as_older(snapshots: Iterable[OperatorSnapshot], *times: int) -> list[OperatorSnapshot]:
    return [
        replace(
            one,
            keyed={name: table for name, table in one.keyed.items() if name != FIRED},
            lists={
                **one.lists,
                FIRED: OperatorListState(ListMode.BROADCAST, (msgspec.msgpack.encode(time),)),
            },
        )
        for one, time in zip(snapshots, times, strict=True)
    ]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_an_older_snapshot_of_an_aligned_barrier_is_restored(parallelism: int) -> None:
    rows = [(key, time) for time in range(0, 100, 10) for key in KEYS]
    before = Subtasks(SHORT, 2)
    before.process(rows)
    before.watermarks(55, 55)
    found = before.results()
    after = Subtasks(SHORT, parallelism, as_older(before.snapshots(), 55, 55))
    after.watermarks(*[MAX_WATERMARK] * parallelism)
    assert found + after.results() == windows_of(rows, SHORT)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_an_older_one_that_is_ahead_of_other_subtasks_loses_no_row(parallelism: int) -> None:
    """The time of a subtask that was further: all windows of a row would have fired."""
    rows = [(key, time) for time in range(0, 100, 10) for key in KEYS]
    before = Subtasks(SHORT, 2)
    before.process(rows)
    after = Subtasks(SHORT, parallelism, as_older(before.snapshots(), 10_000, 10_000))
    after.watermarks(*[MAX_WATERMARK] * parallelism)
    last = {(key, SHORT.last_end(SHORT.pane_end(0)) - SHORT.size_ms) for key in KEYS}
    assert {(key, start) for key, start, _ in after.results()} >= last


def test_an_unreadable_time_is_an_error_of_the_snapshot() -> None:
    item = OperatorListState(ListMode.BROADCAST, (b"\xc1",))
    with pytest.raises(CorruptSnapshot, match="'fired-until' cannot be read"):
        Subtasks(SHORT, 1, [OperatorSnapshot(lists={FIRED: item})])

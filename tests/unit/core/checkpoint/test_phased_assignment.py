"""Assignment of a source with phases: history first, across snapshots, restarts and parallelism."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from unistream.base.errors import CorruptSnapshot
from unistream.core.checkpoint.phased_assignment import PhasedAssigner
from unistream.core.checkpoint.split_assignment import Assignment, SplitAssigner
from unistream.model.graph import HISTORY, LIVE, SourceInfo
from unistream.model.messages import Split


def one(*, bounded: bool = True, pull: bool = True) -> SourceInfo:
    return SourceInfo(connector="any", options={}, bounded=bounded, pull=pull)


def info(*, pull: bool = True, live_bounded: bool = False, live_pull: bool = False) -> SourceInfo:
    phases = (one(pull=pull), one(bounded=live_bounded, pull=live_pull))
    return SourceInfo(connector="hybrid", options={}, bounded=live_bounded, pull=False, phases=phases)


def splits(*ids: str) -> list[Split]:
    """`h-…` of the history, `t-…` live."""
    return [Split(id=name, data=b"", phase=HISTORY if name[0] == "h" else LIVE) for name in ids]


def short(given: Iterable[Assignment]) -> list[tuple[int, int, list[str], bool]]:
    return [(a.phase, a.index, [split.id for split in a.splits], a.no_more) for a in given]


def assigner(
    *ids: str, parallelism: int = 2, pull: bool = True, live_pull: bool = False, batch: bool = False
) -> PhasedAssigner:
    made = PhasedAssigner(info(pull=pull, live_pull=live_pull), parallelism, batch=batch)
    made.discovered(splits(*ids))
    for index in range(parallelism):
        made.ready(index)
    return made


def test_live_splits_wait_for_the_last_history_of_the_last_subtask() -> None:
    made = assigner("h-1", "h-2", "t-0", "t-1")
    made.request(0)
    made.request(1)
    assert short(made.take()) == [(HISTORY, 0, ["h-1"], False), (HISTORY, 1, ["h-2"], False)]
    made.request(0)
    made.request(1)
    assert short(made.take()) == [(HISTORY, 0, [], True), (HISTORY, 1, [], True)]
    made.request(0, LIVE)
    assert made.take() == []
    assert not made.is_live
    made.request(1, LIVE)
    assert made.is_live
    assert short(made.take()) == [(LIVE, 0, ["t-0"], False), (LIVE, 1, ["t-1"], False)]


def test_live_splits_of_a_pushed_history_wait_for_a_subtask_that_does_not_run_yet() -> None:
    made = PhasedAssigner(info(pull=False), 2)
    made.discovered(splits("h-0", "h-1", "t-0"))
    made.ready(0)
    assert short(made.take()) == [(HISTORY, 0, ["h-0"], True)]
    made.request(0, LIVE)
    assert made.take() == []
    made.ready(1)
    assert short(made.take()) == [(HISTORY, 1, ["h-1"], True)]
    made.request(1, LIVE)
    assert short(made.take())[0] == (LIVE, 0, ["t-0"], False)


def test_in_a_batch_job_a_subtask_without_a_slot_is_not_waited_for() -> None:
    made = PhasedAssigner(info(pull=False, live_bounded=True), 2, batch=True)
    made.discovered(splits("h-0", "h-1", "t-0", "t-1"))
    made.ready(0)
    for _ in range(3):
        made.request(0)
        given = made.take()
    assert short(given) == [(HISTORY, 0, [], True)], "it was given h-0 and h-1 before"
    made.request(0, LIVE)
    assert short(made.take()) == [(LIVE, 0, ["t-0"], True)]
    made.ready(1)
    made.request(1)
    assert short(made.take()) == [(HISTORY, 1, [], True)]
    made.request(1, LIVE)
    assert short(made.take()) == [(LIVE, 1, ["t-1"], True)]


def test_an_empty_history_is_over_when_it_was_listed() -> None:
    made = PhasedAssigner(info(), 1)
    made.request(0, LIVE)
    assert not made.is_live, "nothing was listed yet"
    made.discovered(splits("t-0"))
    assert made.is_live
    assert short(made.take()) == [(LIVE, 0, ["t-0"], False)]


def test_live_splits_may_be_pulled() -> None:
    made = assigner("t-0", "t-1", parallelism=1, live_pull=True)
    made.request(0, LIVE)
    assert short(made.take()) == [(LIVE, 0, ["t-0"], False)]
    made.request(0, LIVE)
    assert short(made.take()) == [(LIVE, 0, ["t-1"], False)]


def test_a_new_partition_waits_for_the_switch() -> None:
    made = assigner("h-1", "t-0", parallelism=1)
    made.request(0)
    made.take()
    known = made.found
    assert known is not None
    assert known.ids == {"h-1", "t-0"}
    made.discovered(splits("t-1"))
    assert made.take() == []
    made.request(0, LIVE)
    assert short(made.take()) == [(LIVE, 0, ["t-0", "t-1"], False)]
    made.discovered(splits("t-2"))
    assert short(made.take()) == [(LIVE, 0, ["t-2"], False)]


def history_read(made: PhasedAssigner, *newest: int | None) -> None:
    """By as many subtasks as there are figures."""
    for index in range(len(newest)):
        made.request(index)
        made.take()
    for index, time in enumerate(newest):
        made.request(index, LIVE, time)


@pytest.mark.parametrize(
    ("newest", "expected"),
    [((None, None), None), ((5, None), 5), ((5, 7), 7), ((-3, None), -3)],
    ids=["of no row", "of one subtask", "the greatest", "before 1970"],
)
def test_the_newest_event_time_comes_with_the_live_phase(
    newest: tuple[int | None, ...], expected: int | None
) -> None:
    made = assigner("h-1", "h-2", "t-0", "t-1")
    history_read(made, *newest)
    assert {a.newest for a in made.take() if a.phase == LIVE} == {expected}


def restored(made: PhasedAssigner, mark: int, parallelism: int) -> PhasedAssigner:
    again = PhasedAssigner.restore(info(), parallelism, made.snapshot(mark))
    again.discovered(())
    for index in range(parallelism):
        again.ready(index)
    return again


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_after_a_restore_before_the_switch_all_subtasks_have_to_report(parallelism: int) -> None:
    made = assigner("h-1", "h-2", "t-0", "t-1", "t-2")
    made.request(0)
    made.take()
    made.request(1)
    made.take()
    made.request(1, LIVE)
    again = restored(made, 1, parallelism)
    for index in range(parallelism):
        assert not again.is_live
        assert not [a for a in again.take() if a.phase == LIVE]
        again.request(index, LIVE, index)
    live = [a for a in again.take() if a.phase == LIVE]
    assert sorted(split.id for a in live for split in a.splits) == ["t-0", "t-1", "t-2"]
    assert {a.newest for a in live} == {parallelism - 1}


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_after_a_restore_behind_the_switch_nobody_is_waited_for(parallelism: int) -> None:
    made = assigner("h-1", "h-2", "t-0", "t-1")
    history_read(made, 5, 7)
    again = restored(made, 1, parallelism)
    assert again.is_live, "one that had finished in the snapshot will never report"
    again.request(0)
    assert short(again.take()) == [(HISTORY, 0, [], True)], "every attempt begins in the history"
    again.request(0, LIVE, 9)
    given = again.take()
    assert [a.newest for a in given] == [7], "it stays what it was"


def test_a_snapshot_while_the_last_report_is_under_way_is_before_the_switch() -> None:
    made = assigner("h-1", "t-0", parallelism=1)
    made.request(0)
    made.take()
    state = made.snapshot(1)
    made.request(0, LIVE, 5)
    assert made.is_live
    again = PhasedAssigner.restore(info(), 1, state)
    assert not again.is_live


def test_a_subtask_that_goes_back_to_before_the_switch_gets_its_history_again() -> None:
    made = assigner("h-1", "h-2", "t-0", "t-1", "t-2")
    made.snapshot(1)
    made.completed(1)
    history_read(made, 5, 7)
    made.take()
    made.reader_reset(0)
    assert not made.is_live
    made.discovered(splits("t-3"))
    made.ready(0)
    made.request(0)
    assert short(made.take()) == [(HISTORY, 0, ["h-1"], False)]
    made.request(0)
    assert short(made.take()) == [(HISTORY, 0, [], True)]
    assert made.take() == [], "also t-3, which is subtask 1's"
    made.request(0, LIVE, 5)
    live = made.take()
    assert sorted(short(live)) == [(LIVE, 0, ["t-0", "t-2"], False), (LIVE, 1, ["t-3"], False)]
    assert {a.newest for a in live} == {7}


def test_a_subtask_that_goes_back_to_the_start_holds_nothing() -> None:
    made = assigner("h-1", "t-0")
    made.request(0)
    made.take()
    made.reader_reset(0)
    made.request(1)
    assert short(made.take()) == [(HISTORY, 1, ["h-1"], False)]
    made.request(1, LIVE)
    assert made.is_live


def test_a_subtask_that_goes_back_to_behind_the_switch_stays_live() -> None:
    made = assigner("h-1", "h-2", "t-0", "t-1")
    history_read(made, None, None)
    made.snapshot(1)
    made.completed(1)
    made.take()
    made.reader_reset(1)
    assert made.is_live
    made.ready(1)
    made.request(1)
    made.request(1, LIVE)
    assert short(made.take()) == [(HISTORY, 1, [], True), (LIVE, 1, ["t-1"], False)]


def test_a_subtask_that_had_finished_is_not_waited_for_when_another_had_gone_back() -> None:
    made = assigner("h-1", "h-2", "t-0", "t-1")
    made.snapshot(1)
    made.completed(1)
    history_read(made, 5, 7)
    made.take()
    made.reader_reset(0)
    again = restored(made, 2, 2)
    again.finished(1)
    history_read(again, 3)
    assert again.is_live
    assert {a.newest for a in again.take() if a.phase == LIVE} == {7}


def separated(state: bytes | None = None) -> PhasedAssigner:
    """One subtask has read the history, in a job with checkpoints."""
    if state is not None:
        made = PhasedAssigner.restore(info(), 1, state, separated=True)
    else:
        made = PhasedAssigner(info(), 1, separated=True)
        made.discovered(splits("h-1", "t-0"))
    made.ready(0)
    history_read(made, 5)
    return made


@pytest.mark.parametrize(
    ("marks", "completed", "live"),
    [
        ([], None, False),
        ([(1, True)], None, False),
        ([(1, True)], 1, True),
        ([(1, False)], 1, False),
        ([(1, False), (2, True)], 1, False),
        ([(1, False), (2, True)], 2, True),
    ],
    ids=[
        "no checkpoint",
        "one in progress",
        "one is complete",
        "one whose barriers overtook rows",
        "an aligned one is in progress",
        "an aligned one is complete",
    ],
)
def test_where_there_are_checkpoints_live_rows_wait_for_one(
    marks: list[tuple[int, bool]], completed: int | None, live: bool
) -> None:
    made = separated()
    for mark, aligned in marks:
        made.snapshot(mark, aligned=aligned)
    if completed is not None:
        made.completed(completed)
    assert (made.is_read, made.is_live) == (True, live)
    assert [a.phase for a in made.take()] == ([LIVE] if live else [])


def test_a_checkpoint_from_before_the_end_of_the_history_is_not_that_one() -> None:
    made = PhasedAssigner(info(), 1, separated=True)
    made.discovered(splits("h-1", "t-0"))
    made.snapshot(1)
    history_read(made, 5)
    made.completed(1)
    assert (made.is_read, made.is_live) == (True, False)


@pytest.mark.parametrize("aligned", [True, False])
def test_restored_from_a_checkpoint_whose_barriers_overtook_rows_it_waits_for_another(aligned: bool) -> None:
    state = separated().snapshot(1, aligned=aligned)
    again = separated(state)
    assert (again.is_read, again.is_live) == (True, aligned)
    again.snapshot(2)
    again.completed(2)
    assert again.is_live


def test_the_state_of_another_kind_of_source_is_refused_with_what_to_do() -> None:
    plain = SplitAssigner(one(), 1)
    with pytest.raises(CorruptSnapshot, match=r"not that of a source with a history .* another uid"):
        PhasedAssigner.restore(info(), 1, plain.snapshot(1))
    with pytest.raises(CorruptSnapshot):
        SplitAssigner.restore(one(), 1, assigner("h-1").snapshot(1))


class _Reader:
    """What a subtask has, and has in its latest snapshot."""

    def __init__(self, held: Iterable[str] = ()) -> None:
        self.held = list(held)
        self.live = bool(self.held) and all(name[0] == "t" for name in self.held)
        self.no_history = False
        self.reported = False


class _Cluster:
    """An assigner with its readers; checks that each split is in one place and that history comes first."""

    HISTORY = ("h-1", "h-2", "h-3", "h-4")
    LIVE = ("t-0", "t-1", "t-2")

    def __init__(self, *, pull: bool) -> None:
        self.info = info(pull=pull)
        self.mark = 0
        self.read: set[str] = set()
        self.assigner = PhasedAssigner(self.info, 2)
        self.readers = [_Reader(), _Reader()]
        self.assigner.discovered(splits(*self.HISTORY, *self.LIVE))
        self.start(range(2))
        self.saved: tuple[bytes, list[list[str]], set[str]] | None = None

    def start(self, indexes: Iterable[int]) -> None:
        for index in indexes:
            self.assigner.ready(index)
            if self.readers[index].live:
                self.report(index)

    def report(self, index: int) -> None:
        if not self.readers[index].reported:
            self.readers[index].reported = True
            self.assigner.request(index, LIVE)

    def step(self, index: int) -> None:
        """The subtask requests, gets, and sends on one split of the history."""
        reader = self.readers[index]
        self.assigner.request(index)
        for assigned in self.assigner.take():
            taker = self.readers[assigned.index]
            names = [split.id for split in assigned.splits]
            if assigned.phase == LIVE:
                assert taker.reported
                assert self.read == set(self.HISTORY), "all of the history comes first"
                taker.live = True
            else:
                assert not (taker.live and names), "a reader that is live gets no history"
                taker.no_history = taker.no_history or assigned.no_more
            taker.held += names
        if reader.held and not reader.live:
            self.read.add(reader.held.pop(0))
        elif reader.no_history and not reader.held:
            self.report(index)
        held = [name for one in self.readers for name in one.held]
        waiting = [split.id for split in self.assigner.unassigned]
        assert sorted([*held, *waiting, *self.read]) == sorted([*self.HISTORY, *self.LIVE])

    def snapshot(self) -> None:
        self.mark += 1
        state = self.assigner.snapshot(self.mark)
        self.saved = state, [list(reader.held) for reader in self.readers], set(self.read)
        self.assigner.completed(self.mark)

    def restart(self, parallelism: int) -> None:
        state, held, read = self.saved or (None, [], set())
        every = sorted(name for one in held for name in one)
        self.read = set(read)
        if state is None:
            self.assigner = PhasedAssigner(self.info, parallelism)
            self.assigner.discovered(splits(*self.HISTORY, *self.LIVE))
        else:
            self.assigner = PhasedAssigner.restore(self.info, parallelism, state)
            self.assigner.discovered(())
        self.readers = [_Reader(every[index::parallelism]) for index in range(parallelism)]
        self.start(range(parallelism))


@given(
    pull=st.booleans(),
    steps=st.lists(
        st.one_of(
            st.integers(0, 2),
            st.just("snapshot"),
            st.tuples(st.just("restart"), st.integers(1, 3)),
        ),
        max_size=60,
    ),
)
@hypothesis_settings(max_examples=300)
def test_each_split_is_read_once_and_history_first_whatever_happens(
    pull: bool, steps: list[int | str | tuple[str, int]]
) -> None:
    cluster = _Cluster(pull=pull)
    for step in steps:
        match step:
            case int():
                cluster.step(step % len(cluster.readers))
            case str():
                cluster.snapshot()
            case (_, parallelism):
                cluster.restart(parallelism)
    for _ in range(40):
        for index in range(len(cluster.readers)):
            cluster.step(index)
    assert cluster.assigner.is_live
    assert sorted(name for one in cluster.readers for name in one.held) == list(cluster.LIVE)

"""Split assignment: pushed and pulled, and across snapshots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from unistream.base.errors import CorruptSnapshot
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.core.checkpoint import SplitAssigner
from unistream.core.checkpoint.split_assignment import Assignment
from unistream.model.graph import SourceInfo
from unistream.model.messages import Split
from unistream.model.splits import Unread


def info(*, bounded: bool = False, pull: bool = False) -> SourceInfo:
    return SourceInfo(connector="kafka", options={}, bounded=bounded, pull=pull)


def splits(*ids: str) -> list[Split]:
    return [Split(id=name, data=name.encode()) for name in ids]


def short(given: list[Assignment]) -> list[tuple[int, list[str], bool]]:
    return [(a.index, [split.id for split in a.splits], a.no_more) for a in given]


def test_a_partition_goes_to_its_number_mod_parallelism() -> None:
    assigner = SplitAssigner(info(), 2)
    assigner.discovered(splits("t-10", "t-9", "t-8", "t-7", "t-6", "t-5", "t-4", "t-3", "t-2", "t-1", "t-0"))
    assigner.ready(0)
    assigner.ready(1)
    assert short(assigner.take()) == [
        (0, ["t-0", "t-2", "t-4", "t-6", "t-8", "t-10"], False),
        (1, ["t-1", "t-3", "t-5", "t-7", "t-9"], False),
    ]
    assert assigner.take() == []


def test_later_partitions_keep_the_others_places() -> None:
    assigner = SplitAssigner(info(), 2)
    assigner.discovered(splits("t-1", "t-0"))
    assigner.ready(0)
    assigner.ready(1)
    assigner.take()
    assigner.discovered(splits("t-0", "t-1", "t-2", "a-0"))
    assert short(assigner.take()) == [(0, ["a-0"], False), (1, ["t-2"], False)]


def test_nothing_is_given_before_discovery_or_readiness() -> None:
    assigner = SplitAssigner(info(bounded=True), 1)
    assigner.ready(0)
    assert assigner.take() == []
    assigner.discovered([])
    assert short(assigner.take()) == [(0, [], True)], "a bounded source without splits ends at once"


def test_a_bounded_pushed_source_is_told_once_that_nothing_follows() -> None:
    assigner = SplitAssigner(info(bounded=True), 2)
    assigner.discovered(splits("a"))
    assigner.ready(1)
    assigner.ready(0)
    assert short(assigner.take()) == [(1, [], True), (0, ["a"], True)]
    assert assigner.take() == []


@pytest.mark.parametrize("pull", [True, False])
@given(st.data())
@hypothesis_settings(max_examples=40, deadline=None)
def test_what_no_reader_has_is_added_up_as_it_comes_and_goes(pull: bool, data: st.DataObject) -> None:
    assigner = SplitAssigner(info(bounded=True, pull=pull), 2)
    assert assigner.unread == Unread(None, None), "nothing was found yet"
    rows = st.none() | st.integers(0, 9)
    found = data.draw(st.lists(st.tuples(rows, st.integers(0, 9)), max_size=8))
    assigner.discovered(
        Split(id=f"f-{n}", data=b"", rows=count, size=size) for n, (count, size) in enumerate(found)
    )
    for step in data.draw(st.lists(st.sampled_from(["take", "reset", "restore"]), max_size=8)):
        index = data.draw(st.integers(0, 1))
        if step == "take":
            assigner.ready(index)
            assigner.request(index)
            assigner.take()
        elif step == "reset":
            assigner.reader_reset(index)
        else:
            assigner = SplitAssigner.restore(info(bounded=True, pull=pull), 2, assigner.snapshot(1))
        left = assigner.unassigned
        expected = sum((Unread(split.rows, split.size or None) for split in left), Unread())
        assert assigner.unread == expected


def test_pulled_splits_go_to_who_asks_first() -> None:
    assigner = SplitAssigner(info(bounded=True, pull=True), 2)
    assigner.ready(0)
    assigner.request(1)
    assigner.request(1)
    assert assigner.take() == []
    assigner.discovered(splits("f-2", "f-1"))
    assert short(assigner.take()) == [(1, ["f-1"], False)]
    assigner.request(0)
    assigner.request(1)
    assert short(assigner.take()) == [(0, ["f-2"], False), (1, [], True)]


def test_a_split_that_comes_back_is_not_given_to_a_reader_that_was_told_no_more() -> None:
    """Its request may be repeated: the reader has ended, and would never read what it is given now."""
    assigner = SplitAssigner(info(bounded=True, pull=True), 2)
    assigner.discovered(splits("f"))
    assigner.request(1)
    assigner.request(0)
    assert short(assigner.take()) == [(1, ["f"], False), (0, [], True)]
    assigner.reader_reset(1)
    assigner.request(0)
    assert assigner.take() == []
    assigner.request(1)
    assert short(assigner.take()) == [(1, ["f"], False)]
    assigner.reader_reset(0)
    assigner.request(0)
    assert short(assigner.take()) == [(0, [], True)], "its next attempt may ask"


def test_an_unbounded_pulled_source_waits_for_more() -> None:
    assigner = SplitAssigner(info(pull=True), 1)
    assigner.discovered([])
    assigner.request(0)
    assert short(assigner.take()) == [(0, [], False)], "for its watermark: there is no split before it"
    assert assigner.take() == []
    assigner.discovered(splits("f"))
    assert short(assigner.take()) == [(0, ["f"], False)]


def test_after_a_restore_readers_keep_theirs_and_new_ids_are_added() -> None:
    before = SplitAssigner(info(), 2)
    before.discovered(splits("t-0", "t-1", "t-2"))
    before.ready(0)
    before.take()
    after = SplitAssigner.restore(info(), 3, before.snapshot(1))
    assert after.needs_discovery, "an unbounded source may have grown"
    after.discovered(splits("t-0", "t-1", "t-2", "t-3"))
    for index in range(3):
        after.ready(index)
    assert short(after.take()) == [(0, ["t-3"], False), (1, ["t-1"], False), (2, [], False)]


def test_a_bounded_source_is_discovered_once() -> None:
    before = SplitAssigner(info(bounded=True), 1)
    assert before.needs_discovery
    before.discovered(splits("f"))
    assert not SplitAssigner.restore(info(bounded=True), 1, before.snapshot(1)).needs_discovery


@pytest.mark.parametrize("state", [b"", b"\x00", b"{}", b"\x80", SplitAssigner(info(), 1).snapshot(1)[:-3]])
def test_state_that_cannot_be_read_is_refused(state: bytes) -> None:
    with pytest.raises(CorruptSnapshot):
        SplitAssigner.restore(info(), 1, state)


def test_state_of_another_format_is_refused() -> None:
    state = SplitAssigner(info(), 1).snapshot(1).replace(b"format\x01", b"format\x09")
    with pytest.raises(CorruptSnapshot, match="format 9"):
        SplitAssigner.restore(info(), 1, state)


@given(
    ids=st.lists(st.text(alphabet="ab-0123", min_size=1, max_size=6), unique=True, max_size=12),
    parallelism=st.integers(1, 4),
    pull=st.booleans(),
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40),
)
@hypothesis_settings(max_examples=100, deadline=None)
def test_every_split_is_given_exactly_once(
    ids: list[str], parallelism: int, pull: bool, steps: list[tuple[int, int]]
) -> None:
    source = info(bounded=True, pull=pull)
    assigner = SplitAssigner(source, parallelism)
    given_out: list[str] = []

    def take() -> None:
        given_out.extend(split.id for a in assigner.take() for split in a.splits)

    for kind, choice in steps:
        index = choice % parallelism
        match kind:
            case 0:
                assigner.discovered(splits(*ids))
            case 1:
                assigner.ready(index)
            case 2:
                assigner.request(index)
            case _:
                assigner = SplitAssigner.restore(source, parallelism, assigner.snapshot(1))
        take()
    assigner.discovered(splits(*ids))
    for index in range(parallelism):
        assigner.ready(index)
    take()
    for _ in range(len(ids) + 1):
        assigner.request(0)
        take()
    assert sorted(given_out) == sorted(ids)


# --- event time -----------------------------------------------------------------------------------


def timed(**least: int | None) -> list[Split]:
    return [Split(id=name, data=b"", min_timestamp=time) for name, time in least.items()]


def limits(given: list[Assignment]) -> list[tuple[int, list[str], int]]:
    return [(a.index, [split.id for split in a.splits], a.watermark_limit) for a in given]


def requested(assigner: SplitAssigner, *indexes: int) -> list[tuple[int, list[str], int]]:
    for index in indexes:
        assigner.request(index)
    return limits(assigner.take())


@pytest.mark.parametrize(
    ("in_order", "expected"),
    [
        pytest.param(
            False,
            [
                (0, ["d"], MIN_WATERMARK),  # nothing is known of e
                (1, ["e"], 19),
                (0, ["b"], 29),
                (1, ["c"], 39),
                (0, ["a"], MAX_WATERMARK),
                (1, [], MAX_WATERMARK),
            ],
            id="by the least event time, those without one first",
        ),
        pytest.param(
            True,
            [
                (0, ["a"], MAX_WATERMARK),
                (1, ["b"], MAX_WATERMARK),
                (0, ["c"], MAX_WATERMARK),
                (1, ["d"], MAX_WATERMARK),
                (0, ["e"], MAX_WATERMARK),
                (1, [], MAX_WATERMARK),
            ],
            id="declared to be in order: by name",
        ),
    ],
)
def test_pulled_splits_come_in_the_order_of_time(
    in_order: bool, expected: list[tuple[int, list[str], int]]
) -> None:
    source = SourceInfo(connector="file", options={}, bounded=True, pull=True, in_order=in_order)
    assigner = SplitAssigner(source, 2)
    assigner.discovered(timed(a=40, b=20, c=30, d=None, e=None))
    assert [given for turn in range(6) for given in requested(assigner, turn % 2)] == expected


def test_splits_that_come_back_are_given_out_in_their_order_again() -> None:
    assigner = SplitAssigner(info(bounded=True, pull=True), 3)
    assigner.discovered(timed(a=10, b=20, c=30, d=40))
    assert requested(assigner, 0, 1, 2) == [(0, ["a"], 19), (1, ["b"], 29), (2, ["c"], 39)]
    assigner.reader_reset(1)
    assigner.reader_reset(0)
    assert requested(assigner, 1, 0) == [(1, ["a"], 19), (0, ["b"], 39)]


def test_the_order_and_the_limits_survive_a_snapshot() -> None:
    before = SplitAssigner(info(bounded=True, pull=True), 1)
    before.discovered(timed(a=40, b=20, c=None))
    assert requested(before, 0) == [(0, ["c"], 19)]
    after = SplitAssigner.restore(info(bounded=True, pull=True), 2, before.snapshot(1))
    assert requested(after, 0, 1) == [(0, ["b"], 39), (1, ["a"], MAX_WATERMARK)]


def test_after_a_restore_no_watermark_comes_before_the_first_discovery() -> None:
    """A partition that was added while the job was stopped may have older rows than the others by then."""
    before = SplitAssigner(info(), 1)
    before.discovered(splits("t-0"))
    before.ready(0)
    assert limits(before.take()) == [(0, ["t-0"], MAX_WATERMARK)]
    before.discovered(splits("t-0", "t-1"))
    after = SplitAssigner.restore(info(), 2, before.snapshot(1))
    after.ready(0)
    after.ready(1)
    assert limits(after.take()) == [(1, ["t-1"], MIN_WATERMARK)]
    after.discovered(splits("t-0", "t-1", "t-2"))
    assert limits(after.take()) == [(0, ["t-2"], MAX_WATERMARK), (1, [], MAX_WATERMARK)]
    assert after.take() == []
    after.reader_reset(1)
    after.ready(1)
    assert limits(after.take()) == [(1, ["t-1"], MAX_WATERMARK)], "its next attempt has to be sent it again"


def test_readers_of_an_unbounded_source_that_wait_get_the_new_limit() -> None:
    assigner = SplitAssigner(info(pull=True), 2)
    assigner.discovered(timed(a=10, b=20))
    assert requested(assigner, 0) == [(0, ["a"], 19)]
    assert requested(assigner, 0, 1) == [(0, ["b"], MAX_WATERMARK), (1, [], MAX_WATERMARK)]
    assert assigner.take() == []

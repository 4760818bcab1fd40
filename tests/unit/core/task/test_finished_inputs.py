"""Channels and inputs that have finished leave: they neither hold back nor pull forward the others."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.core.task import CombinedWatermark, Signal, StatusWatermarkValve
from unistream.model.elements import Watermark, WatermarkStatus

Machine = StatusWatermarkValve | CombinedWatermark
Step = tuple[int, int | str]
"""(channel, watermark) or (channel, "idle" | "active" | "done")."""

IDLE, ACTIVE, END = WatermarkStatus(idle=True), WatermarkStatus(idle=False), Watermark(MAX_WATERMARK)


def play(machine: Machine, step: Step) -> list[Signal]:
    channel, what = step
    if what == "done":
        return machine.on_finished(channel)
    if isinstance(what, str):
        return machine.on_status(channel, what == "idle")
    return machine.on_watermark(channel, what)


def played(machine: Machine, *steps: Step) -> list[list[Signal]]:
    return [play(machine, step) for step in steps]


CASES = [
    pytest.param(
        [(0, "done"), (1, "idle")], [[], [IDLE]], id="one finished, the other idle: nothing advances"
    ),
    pytest.param(
        [(1, "idle"), (0, "done")], [[], [IDLE]], id="and so if it was idle before the one finished"
    ),
    pytest.param(
        [(0, "done"), (1, 5), (1, "idle"), (1, "active"), (1, 9)],
        [[], [Watermark(5)], [IDLE], [ACTIVE], [Watermark(9)]],
        id="the rest goes on as if the finished one were not there",
    ),
    pytest.param(
        [(1, 8), (0, 5), (1, "idle"), (0, "done")],
        [[], [Watermark(5)], [], [Watermark(8), IDLE]],
        id="the last active one finishes: what the idle one had said is flushed",
    ),
    pytest.param(
        [(0, 9), (1, 5), (1, "idle"), (0, "done")],
        [[], [Watermark(5)], [Watermark(9)], [IDLE]],
        id="an idle one that is behind is not waited for, and nothing goes back",
    ),
    pytest.param(
        [(0, 5), (1, 3), (1, "done")], [[], [Watermark(3)], [Watermark(5)]], id="it holds back none"
    ),
    pytest.param(
        [(0, 5), (0, "done"), (1, 3), (1, "done")],
        [[], [], [Watermark(3)], [END]],
        id="the last to finish ends event time",
    ),
    pytest.param(
        [(0, "done"), (1, "idle"), (1, "done")],
        [[], [IDLE], [ACTIVE, END]],
        id="an idle one that finishes is active first, or its end would have no effect",
    ),
    pytest.param(
        [(0, "done"), (0, "done"), (0, 7), (0, "idle"), (0, "active"), (1, 3)],
        [[], [], [], [], [], [Watermark(3)]],
        id="nothing counts that comes from a finished one",
    ),
]


@pytest.mark.parametrize("machine", [StatusWatermarkValve, CombinedWatermark])
@pytest.mark.parametrize(("steps", "out"), CASES)
def test_finished(machine: type[Machine], steps: list[Step], out: list[list[Signal]]) -> None:
    assert played(machine(2), *steps) == out


# --- properties (I10) -----------------------------------------------------------------------------

CHANNELS = 4
steps_of_channels = st.lists(
    st.tuples(
        st.integers(0, CHANNELS - 1),
        st.one_of(st.integers(0, 30), st.sampled_from(["idle", "active", "active", "done"])),
    ),
    max_size=60,
)
machines = st.sampled_from([StatusWatermarkValve, CombinedWatermark])


@example(
    machine=CombinedWatermark,
    steps=[(0, "done"), (1, "done"), (2, "idle"), (3, "done"), (2, 0), (2, "done")],
)
@given(machine=machines, steps=steps_of_channels)
def test_no_row_of_an_unfinished_channel_is_late_for_the_end_of_another(
    machine: type[Machine], steps: list[Step]
) -> None:
    """Whatever is said is something that a channel which had not finished has said of itself; it only
    grows; event time ends once, with the last channel; IDLE stands exactly for "all that are left are"."""
    combined = machine(CHANNELS)
    open_ = set(range(CHANNELS))
    said = dict.fromkeys(range(CHANNELS), MIN_WATERMARK)
    out: list[Signal] = []
    for channel, what in steps:
        signals = play(combined, (channel, what))
        if channel in open_ and isinstance(what, int):
            said[channel] = max(said[channel], what)
        if what == "done":
            open_.discard(channel)
        for signal in signals:
            if isinstance(signal, Watermark) and open_:
                assert signal.timestamp <= max(said[c] for c in open_), (channel, what)
        out += signals
    times = [signal.timestamp for signal in out if isinstance(signal, Watermark)]
    assert times == sorted(set(times))
    assert (MAX_WATERMARK in times) == (not open_)
    if not open_:
        statuses = [signal.idle for signal in out if isinstance(signal, WatermarkStatus)]
        assert not statuses or not statuses[-1]


@given(machine=machines, steps=steps_of_channels, position=st.integers(0, CHANNELS - 1))
def test_a_channel_that_finished_at_once_was_never_there(
    machine: type[Machine], steps: list[Step], position: int
) -> None:
    with_it, without_it = machine(CHANNELS), machine(CHANNELS - 1)
    assert with_it.on_finished(position) == []
    for channel, what in steps:
        if channel != position:
            moved = (channel - (channel > position), what)
            assert play(with_it, (channel, what)) == play(without_it, moved), (channel, what)

"""A process that stood still does not count that time."""

from __future__ import annotations

import pytest

from tests.eventually import eventually
from unistream.base.awake_clock import LATE_MS, READ_MS, AwakeClock, AwakeTime
from unistream.base.clock import SystemClock


@pytest.mark.parametrize(
    ("readings", "times"),
    [
        pytest.param([5_000], [5_000], id="it begins where the clock is"),
        pytest.param([0, 500, 1_000], [0, 500, 1_000], id="a process that runs counts all"),
        pytest.param([0, LATE_MS], [0, LATE_MS], id="a reading that is late on a busy machine counts"),
        pytest.param([0, LATE_MS + 1], [0, READ_MS], id="of a standstill little counts"),
        pytest.param([0, 60_000, 60_500, 61_000], [0, 500, 1_000, 1_500], id="and time goes on after it"),
        pytest.param([0, 10_000, 20_000, 30_000], [0, 500, 1_000, 1_500], id="also where every step is slow"),
        pytest.param([0, 60_000, 59_000, 60_100], [0, 500, 500, 600], id="a reading of before comes late"),
        pytest.param([0, 500, 400, 600], [0, 500, 500, 600], id="readings of two threads change places"),
    ],
)
def test_time_passes_while_readings_follow_each_other(readings: list[int], times: list[int]) -> None:
    time = AwakeTime()
    assert [time.at(reading) for reading in readings] == times


class Jumping(SystemClock):
    """A clock that jumps as that of a process that stood still."""

    def __init__(self) -> None:
        self.jumped_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.jumped_ms


def test_a_standstill_is_noticed_by_whoever_asks_first_and_said(caplog: pytest.LogCaptureFixture) -> None:
    source = Jumping()
    with AwakeClock(source) as clock:
        before_ms = clock.monotonic_ms()
        source.jumped_ms = 3_600_000
        assert clock.monotonic_ms() - before_ms < 1_800_000
    assert "event=process_stood_still" in caplog.text


def test_a_process_in_which_nobody_asks_for_the_time_did_not_stand_still() -> None:
    source = Jumping()
    with AwakeClock(source) as clock:
        reading = clock._time._last_ms
        eventually(lambda: clock._time._last_ms != reading, "its own thread reads it")
        assert clock._time.slept_ms == 0

"""When periodic checkpoints are due, with and without a backlog."""

from __future__ import annotations

import pytest

from tests.unit.core.cluster import settings
from unistream.base.errors import ConfigError
from unistream.core.checkpoint.schedule import INTERVAL, PAUSE, CheckpointSchedule
from unistream.core.contract import CancelTimer, CommandOutbox, SetTimer

INTERVAL_KEY = "execution.checkpointing.interval"
BACKLOG_KEY = "execution.checkpointing.interval-during-backlog"


def timers(outbox: CommandOutbox) -> list[tuple[int, int | None]]:
    """(number, delay), or None for one that is cancelled."""
    found: list[tuple[int, int | None]] = []
    for command in outbox.take():
        match command:
            case SetTimer(timer=timer, delay_ms=delay_ms):
                found.append((timer.id, delay_ms))
            case CancelTimer(timer=timer):
                found.append((timer.id, None))
    return found


def test_without_an_interval_of_its_own_a_backlog_has_the_common_one() -> None:
    outbox = CommandOutbox()
    schedule = CheckpointSchedule(outbox, 1_000, 0)
    schedule.begin(backlog=True)
    assert schedule.is_due
    schedule.started()
    assert timers(outbox) == [(INTERVAL.id, 1_000)]


def test_during_a_backlog_its_interval_counts_and_then_the_common_one() -> None:
    outbox = CommandOutbox()
    schedule = CheckpointSchedule(outbox, 1_000, 0, 60_000)
    schedule.begin(backlog=True)
    assert schedule.is_due, "the first one"
    schedule.started()
    assert timers(outbox) == [(INTERVAL.id, 60_000)]
    assert not schedule.is_due
    schedule.backlog(True)
    assert not schedule.is_due
    schedule.backlog(False)
    assert schedule.is_due, "one at the end of the backlog"
    schedule.started()
    assert timers(outbox) == [(INTERVAL.id, 1_000)]
    schedule.backlog(False)
    assert not schedule.is_due


def test_with_0_none_is_due_during_a_backlog() -> None:
    outbox = CommandOutbox()
    schedule = CheckpointSchedule(outbox, 1_000, 0, 0)
    schedule.begin(backlog=True)
    assert not schedule.is_due
    schedule.started()
    assert timers(outbox) == [], "one that a user requested"
    schedule.backlog(False)
    assert schedule.is_due


def test_the_first_one_may_be_held_back_longer_also_after_a_restart_until_one_is_complete() -> None:
    outbox = CommandOutbox()
    schedule = CheckpointSchedule(outbox, 1_000, 200, first_pause_ms=5_000)
    for _start in range(2):
        schedule.begin()
        assert timers(outbox) == [(PAUSE.id, 5_000)]
        assert not schedule.is_due
        schedule.end()
        outbox.take()
    schedule.begin()
    schedule.fired(PAUSE)
    assert schedule.is_due
    schedule.started()
    schedule.completed()
    schedule.end()
    outbox.take()
    schedule.begin()
    assert timers(outbox) == [(PAUSE.id, 200)]


def test_the_last_checkpoint_does_not_wait_for_a_backlog() -> None:
    schedule = CheckpointSchedule(CommandOutbox(), 1_000, 0, 0)
    schedule.begin(backlog=True)
    schedule.urgent = True
    assert schedule.is_due


def test_the_end_cancels_every_timer() -> None:
    outbox = CommandOutbox()
    schedule = CheckpointSchedule(outbox, 1_000, 500, 0)
    schedule.begin(backlog=True)
    schedule.end()
    assert {number for number, delay in timers(outbox) if delay is None} == {0, 1}
    schedule.backlog(False)
    assert not schedule.is_due
    assert timers(outbox) == []


@pytest.mark.parametrize(
    ("backlog", "expected"),
    [("0 ms", 0), ("2 s", 2_000), ("30 min", 1_800_000)],
    ids=["none", "the same", "longer"],
)
def test_the_option(backlog: str, expected: int) -> None:
    made = settings({INTERVAL_KEY: "2 s", BACKLOG_KEY: backlog})
    assert made.checkpoint_backlog_interval_ms == expected


def test_a_shorter_interval_is_refused_as_in_flink() -> None:
    with pytest.raises(ConfigError, match=r"interval-during-backlog: 1999 ms is less than .* \(2000 ms\)"):
        settings({INTERVAL_KEY: "2 s", BACKLOG_KEY: "1999 ms"})

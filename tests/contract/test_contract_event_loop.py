"""What every `port.event_loop.EventLoop` does: the thread of users, and that of a simulated machine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

import pytest

from tests.eventually import WAIT_S
from tests.support.masters.loop import MachineLoop
from tests.support.masters.machine import Machine
from unistream.base.clock import SystemClock
from unistream.ha.event_thread import EventThread
from unistream.port.event_loop import EventLoop
from unistream.testing.sim.world import World


class Rig(Protocol):
    """A loop, and how one waits for it."""

    loop: EventLoop

    def until_ended(self) -> None:
        """Returns once the loop has ended."""


class Threaded:
    """A loop of users."""

    def __init__(self) -> None:
        self.loop = EventThread("loop", SystemClock())

    def until_ended(self) -> None:
        assert self.loop.join(WAIT_S)


class Simulated:
    """A loop of a machine whose clock runs fast."""

    def __init__(self) -> None:
        self.world = World(1)
        self.loop = MachineLoop(self.world, Machine("one", self.world, 1.1), "look")

    def until_ended(self) -> None:
        assert self.loop.join(WAIT_S), "its caller has the time of the world go on"


@pytest.fixture(params=[Threaded, Simulated], ids=["thread", "machine"])
def rig(request: pytest.FixtureRequest) -> Rig:
    made: Rig = request.param()
    return made


def noting(words: list[str], word: str) -> Callable[[], None]:
    return lambda: words.append(word)


def test_actions_are_performed_in_their_order_also_those_that_came_before_the_start(rig: Rig) -> None:
    words: list[str] = []
    for word in ("a", "b"):
        rig.loop.call_soon(noting(words, word))
    rig.loop.start()
    rig.loop.call_soon(lambda: rig.loop.call_soon(noting(words, "d")))
    rig.loop.call_soon(noting(words, "c"))
    rig.loop.call_soon(lambda: rig.loop.call_soon(rig.loop.stop))
    rig.until_ended()
    assert words == ["a", "b", "c", "d"]


def test_what_is_for_later_waits_for_its_time_and_for_what_is_due(rig: Rig) -> None:
    words: list[str] = []
    clock = rig.loop.clock
    at_ms = clock.monotonic_ms() + 20

    def late() -> None:
        assert clock.monotonic_ms() >= at_ms
        words.append("late")
        rig.loop.stop()

    rig.loop.call_at(at_ms, late)
    rig.loop.call_at(at_ms - 20, noting(words, "early"))
    rig.loop.call_soon(noting(words, "soon"))
    rig.loop.start()
    rig.until_ended()
    assert words in (["soon", "early", "late"], ["early", "soon", "late"])


def test_what_was_cancelled_is_not_performed(rig: Rig) -> None:
    words: list[str] = []
    now_ms = rig.loop.clock.monotonic_ms()
    cancel = rig.loop.call_at(now_ms + 10, noting(words, "cancelled"))
    cancel()
    cancel()
    done = rig.loop.call_at(now_ms, noting(words, "done"))
    rig.loop.call_at(now_ms + 20, done)
    rig.loop.call_at(now_ms + 30, rig.loop.stop)
    rig.loop.start()
    rig.until_ended()
    assert words == ["done"]


def test_nothing_is_performed_after_the_end(rig: Rig) -> None:
    words: list[str] = []
    rig.loop.call_at(rig.loop.clock.monotonic_ms() + 60_000, noting(words, "later"))
    rig.loop.start()
    rig.loop.stop()
    rig.loop.call_soon(noting(words, "too late"))
    rig.until_ended()
    assert words == []


def test_a_loop_does_not_wait_for_itself_and_nobody_waits_for_one_that_was_never_started(rig: Rig) -> None:
    assert rig.loop.join(0)
    joined: list[bool] = []

    def end() -> None:
        joined.append(rig.loop.join(WAIT_S))
        rig.loop.stop()

    rig.loop.call_soon(end)
    rig.loop.start()
    rig.until_ended()
    assert joined == [True]


def test_the_thread_of_users_has_its_name() -> None:
    rig, names = Threaded(), list[str]()
    rig.loop.call_soon(lambda: names.append(threading.current_thread().name))
    rig.loop.start()
    rig.loop.stop()
    rig.until_ended()
    assert names == ["loop"]

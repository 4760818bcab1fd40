"""Both strategies of scheduling, as tables: when a job starts and with which graph, what it asks for, how far
a failure reaches, when it may change its parallelism."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.core.cluster import job_graph, settings
from unistream.base.config import (
    RESCALE_COOLDOWN,
    RESCALE_STABILIZATION_TIMEOUT,
    RESOURCE_STABILIZATION_TIMEOUT,
    RESOURCE_WAIT_TIMEOUT,
)
from unistream.base.ids import AllocationId, SubtaskId, TaskManagerId
from unistream.core import contract
from unistream.core.contract import AdaptiveSettings, CommandOutbox, SlotLease
from unistream.core.graph.plan import ExecutionPlan
from unistream.core.job.adaptive import AdaptiveScheduling
from unistream.core.job.scheduling import JobSlots, Scheduling
from unistream.core.resource import SlotPool
from unistream.model.graph import JobGraph
from unistream.model.messages import TaskFailure

SETTINGS = AdaptiveSettings(wait_ms=1000, stable_ms=100, cooldown_ms=500, running_stable_ms=200)
AT_ONCE = AdaptiveSettings(wait_ms=1000, stable_ms=0, cooldown_ms=0, running_stable_ms=0)
WAIT, STABLE, COOL = (contract.Timer(contract.TimerKind.RESOURCES, number) for number in range(3))
NARROW, USUAL, WIDE = (job_graph(parallelism=number) for number in (2, 4, 5))


class Job:
    """A strategy with slots that come and go, and what it asked its shell for."""

    def __init__(self, strategy: str, settings: AdaptiveSettings = SETTINGS) -> None:
        self.outbox = CommandOutbox()
        self.pool = SlotPool(USUAL, 1000)
        slots = JobSlots(self.pool, self.outbox)
        self.scheduling: Scheduling = (
            Scheduling(USUAL, slots, 300)
            if strategy == "default"
            else AdaptiveScheduling(USUAL, slots, settings, self.outbox)
        )
        self.timers: dict[contract.Timer, int] = {}
        self.asked: list[str] = []
        self._workers = 0

    def have(self, count: int) -> None:
        """So many slots are there, of the first slices."""
        self.pool.require(ExecutionPlan(WIDE).subtasks)
        for request in self.pool.open[: max(0, count - len(self.pool.leases))]:
            self._workers += 1
            name = f"tm{self._workers}"
            lease = SlotLease(
                request=request.key,
                allocation=AllocationId(name),
                task_manager=TaskManagerId(name),
                address=name,
            )
            self.pool.grant((lease,))
        for lease in self.pool.leases[count:]:
            self.pool.lost(lease.task_manager)
        assert len(self.pool.leases) == count

    def look(self) -> None:
        """Takes what was asked for."""
        for command in self.outbox.take():
            match command:
                case contract.SetTimer(timer=timer, delay_ms=delay_ms):
                    self.timers[timer] = delay_ms
                case contract.CancelTimer(timer):
                    self.timers.pop(timer, None)
                case contract.RequestSlots(requests=requests):
                    self.asked += [request.key for request in requests]

    def start(self, slots: int, *, fits: Callable[[JobGraph], bool] = lambda _: True) -> int | str | None:
        """The parallelism to start with, or the kind of the failure."""
        self.have(slots)
        found = self.scheduling.start_with(NARROW, fits, lambda _: None, "")
        self.look()
        return found.kind if isinstance(found, TaskFailure) else width(found)

    def fire(self, timer: contract.Timer) -> None:
        self.timers.pop(timer, None)
        self.scheduling.fired(timer)


def width(graph: JobGraph | None) -> int | None:
    return None if graph is None else graph.vertices[0].parallelism


def waiting(strategy: str, settings: AdaptiveSettings = SETTINGS) -> Job:
    job = Job(strategy, settings)
    job.scheduling.wait()
    job.look()
    return job


def running(slots: int) -> Job:
    """An adaptive one."""
    job = waiting("adaptive")
    job.start(slots)
    job.fire(STABLE)
    assert job.start(slots) == slots
    return job


# --- starting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "story", "last"),
    [
        pytest.param("default", [0], 4, id="default: at once, its regions wait for their slots"),
        pytest.param("adaptive", [4], 4, id="adaptive: at once with all"),
        pytest.param("adaptive", [2], None, id="adaptive: not at once with some"),
        pytest.param("adaptive", [2, 3, STABLE, 3], 3, id="adaptive: one more came, the time goes on"),
        pytest.param("adaptive", [2, 0, STABLE, 2], None, id="adaptive: when they go, it begins again"),
        pytest.param("adaptive", [1, WAIT, 1], 1, id="adaptive: with whatever there is after the wait"),
        pytest.param("adaptive", [0], None, id="adaptive: none, and there is time"),
        pytest.param("adaptive", [0, WAIT, 0], "NoResourceAvailable", id="adaptive: none in time"),
        pytest.param("adaptive", [0, WAIT, 1], 1, id="adaptive: one came just in time"),
    ],
)
def test_a_start(strategy: str, story: list[Any], last: int | str | None) -> None:
    job = waiting(strategy)
    found: int | str | None = None
    for step in story:
        if isinstance(step, contract.Timer):
            job.fire(step)
        else:
            found = job.start(step)
    assert found == last


@pytest.mark.parametrize(
    ("slots", "fits", "last"),
    [
        pytest.param([4], [2], 2, id="more slots: it starts as it ran"),
        pytest.param([1, STABLE, 1], [2], None, id="fewer: it waits for those that are missing"),
        pytest.param([1, WAIT, 1], [2], 1, id="they did not come: the restore will say why it cannot be"),
    ],
)
def test_rows_in_flight_bind_an_adaptive_job_to_its_former_parallelism(
    slots: list[Any], fits: list[int], last: int | None
) -> None:
    job = waiting("adaptive")
    found: int | str | None = None
    for step in slots:
        if isinstance(step, contract.Timer):
            job.fire(step)
        else:
            found = job.start(step, fits=lambda graph: width(graph) in fits)
    assert found == last


def test_the_timers_of_an_adaptive_start() -> None:
    job = waiting("adaptive")
    assert job.timers == {WAIT: 1000}
    assert job.start(2) is None
    assert job.timers == {WAIT: 1000, STABLE: 100}
    assert job.start(4) == 4
    assert job.timers == {COOL: 500}


def test_without_stabilization_and_cool_down_there_are_no_timers() -> None:
    job = waiting("adaptive", AT_ONCE)
    assert job.start(2) == 2
    assert job.timers == {}
    job.have(3)
    assert job.scheduling.should_grow(NARROW)


def test_a_timer_that_was_cancelled_and_fires_says_nothing() -> None:
    job = waiting("adaptive")
    job.start(4)
    job.fire(WAIT)  # it was on its way
    job.scheduling.wait()
    assert job.start(0) is None, "the new wait has just begun"


def test_no_slot_fails_the_job_for_good() -> None:
    job = waiting("adaptive")
    job.fire(WAIT)
    failure = job.scheduling.start_with(USUAL, lambda _: True, lambda _: None, "no disk")
    assert isinstance(failure, TaskFailure)
    assert not failure.recoverable
    assert "no slot for slot sharing group(s) 'default' after 1000 ms" in failure.message
    assert failure.message.endswith("a worker was started but failed: no disk")


@pytest.mark.parametrize("strategy", ["default", "adaptive"])
def test_its_end_leaves_no_timer(strategy: str) -> None:
    job = waiting(strategy)
    job.start(2)
    job.scheduling.cool_down()
    job.scheduling.stop()
    job.look()
    assert job.timers == {}


def test_the_options() -> None:
    names = (RESOURCE_WAIT_TIMEOUT, RESOURCE_STABILIZATION_TIMEOUT, RESCALE_COOLDOWN)
    keys = [option.key for option in (*names, RESCALE_STABILIZATION_TIMEOUT)]
    config = {key: f"{place + 1} s" for place, key in enumerate(keys)}
    assert settings(config | {"jobmanager.scheduler": "adaptive"}).adaptive == AdaptiveSettings(
        wait_ms=1_000, stable_ms=2_000, cooldown_ms=3_000, running_stable_ms=4_000
    )


# --- slots and failures -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "asked"),
    [
        ("default", ["default/1"]),
        ("adaptive", ["default/0", "default/1", "default/2", "default/3"]),
    ],
)
def test_what_is_asked_for_when_a_task_restarts(strategy: str, asked: list[str]) -> None:
    job = Job(strategy)
    subtask = SubtaskId(USUAL.vertices[0].id, 1)
    job.scheduling.request([subtask])
    job.scheduling.request([subtask])
    job.look()
    assert job.asked == asked, "and only once"


@pytest.mark.parametrize(("strategy", "alone"), [("default", True), ("adaptive", False)])
def test_how_far_a_failure_reaches(strategy: str, alone: bool) -> None:
    subtask = SubtaskId(USUAL.vertices[0].id, 1)
    assert Job(strategy).scheduling.reach(subtask) == (subtask if alone else None)


# --- another parallelism ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "slots", "current", "wanted", "expected"),
    [
        pytest.param("default", 4, USUAL, WIDE, (5, False), id="default: wider, a slot is missing"),
        pytest.param("default", 5, USUAL, WIDE, (5, True), id="default: wider, all are there"),
        pytest.param("default", 4, USUAL, NARROW, (2, True), id="default: narrower"),
        pytest.param("adaptive", 4, USUAL, WIDE, (4, False), id="adaptive: wider, nothing would change"),
        pytest.param("adaptive", 3, NARROW, WIDE, (3, True), id="adaptive: wider, one more is there"),
        pytest.param("adaptive", 4, USUAL, NARROW, (2, True), id="adaptive: narrower"),
        pytest.param("adaptive", 0, NARROW, WIDE, (2, False), id="adaptive: no slot, it stays"),
    ],
)
def test_a_user_asks_for_another(
    strategy: str, slots: int, current: JobGraph, wanted: JobGraph, expected: tuple[int, bool]
) -> None:
    job = Job(strategy)
    job.have(slots)
    target, may = job.scheduling.target(wanted, current), job.scheduling.may_rescale(wanted, current)
    assert (width(target), may) == expected


@pytest.mark.parametrize(
    ("strategy", "why"),
    [("default", "1 of 5 slots are missing after 300 ms"), ("adaptive", None)],
)
def test_slots_of_a_wider_graph_that_do_not_come(strategy: str, why: str | None) -> None:
    job = Job(strategy)
    job.have(4)
    found = job.scheduling.overdue(WIDE)
    assert found is None if why is None else why in (found or "")


def test_a_default_job_never_grows_by_itself() -> None:
    job = Job("default")
    job.have(4)
    assert not job.scheduling.should_grow(NARROW)


@pytest.mark.parametrize(
    ("story", "grows"),
    [
        pytest.param([4], False, id="not in the cool-down"),
        pytest.param([COOL, 4], True, id="at once to all after the cool-down"),
        pytest.param([COOL, 3], False, id="not at once to some"),
        pytest.param([COOL, 3, STABLE, 3], True, id="to some when no more came for a while"),
        pytest.param([COOL, 3, 2, STABLE, 3], False, id="the one that came was gone for a while"),
        pytest.param([COOL, 2], False, id="not without more"),
        pytest.param([COOL, 0], False, id="not without any"),
    ],
)
def test_an_adaptive_job_grows(story: list[Any], grows: bool) -> None:
    job = running(2)
    found = False
    for step in story:
        if isinstance(step, contract.Timer):
            job.fire(step)
        else:
            job.have(step)
            found = job.scheduling.should_grow(NARROW)
            job.look()
    assert found is grows


def test_never_above_what_is_desired() -> None:
    job = running(4)
    job.fire(COOL)
    job.have(5)
    assert not job.scheduling.should_grow(USUAL)

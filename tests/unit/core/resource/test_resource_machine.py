"""Slots and workers: a table of behaviours, and random clusters that always come to serve every request."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from unistream.base.ids import JobId, TaskManagerId
from unistream.core.contract import SlotRequest
from unistream.core.resource import ResourceMachine
from unistream.core.resource import messages as rm
from unistream.core.resource.machine import START_PAUSE_MS_MIN


class Rig:
    def __init__(self, **fields: Any) -> None:
        numbers = count()
        arguments: dict[str, Any] = {
            "slots_per_worker": 1,
            "heartbeat_timeout_ms": 1_000,
            "idle_timeout_ms": 5_000,
            "start_timeout_ms": 3_000,
            "max_workers": None,
            "new_id": lambda prefix: f"{prefix}-{next(numbers)}",
        }
        self.machine = ResourceMachine(**(arguments | fields))
        self.now_ms = 1_000_000
        self.starting: list[str] = []
        self.up: list[str] = []
        self.granted: dict[tuple[str, str], str] = {}

    def do(self, event: rm.ResourceEvent) -> list[rm.ResourceCommand]:
        commands = self.machine.handle(event)
        self.machine.validate()
        for command in commands:
            match command:
                case rm.StartWorker(task_manager=worker):
                    self.starting.append(worker)
                case rm.GrantSlots(job=job, leases=leases):
                    self.granted |= {(job, lease.request): lease.task_manager for lease in leases}
                case rm.AnnounceLoss(task_manager=worker) | rm.StopWorker(task_manager=worker):
                    self._forget(worker)
        return commands

    def _forget(self, worker: str) -> None:
        self.starting = [w for w in self.starting if w != worker]
        self.up = [w for w in self.up if w != worker]
        self.granted = {request: w for request, w in self.granted.items() if w != worker}

    def want(self, job: str, *keys: str) -> list[rm.ResourceCommand]:
        requests = tuple(SlotRequest(key=key, group="default") for key in keys)
        return self.do(rm.SlotsWanted(job=JobId(job), requests=requests))

    def register(self, worker: str, slots: int = 1) -> list[rm.ResourceCommand]:
        self.starting.remove(worker)
        self.up.append(worker)
        return self.do(
            rm.WorkerRegistered(
                task_manager=TaskManagerId(worker), address=f"unix:{worker}", slots=slots, now_ms=self.now_ms
            )
        )

    def beat(self) -> None:
        for worker in self.up:
            self.do(rm.WorkerHeartbeat(task_manager=TaskManagerId(worker), now_ms=self.now_ms))

    def end(self, worker: str) -> list[rm.ResourceCommand]:
        ended = rm.WorkerEnded(task_manager=TaskManagerId(worker), reason="killed", now_ms=self.now_ms)
        return self.do(ended)

    def tick(self, later_ms: int = 0) -> list[rm.ResourceCommand]:
        self.now_ms += later_ms
        return self.do(rm.Tick(self.now_ms))

    def ready(self, job: str, *keys: str) -> None:
        self.tick()
        self.want(job, *keys)
        while self.starting:
            self.register(self.starting[0])


def names(commands: list[rm.ResourceCommand]) -> list[str]:
    return [type(command).__name__ for command in commands]


@pytest.mark.parametrize(("slots", "workers"), [(1, 3), (2, 2), (4, 1)])
def test_workers_are_started_for_what_is_missing(slots: int, workers: int) -> None:
    rig = Rig(slots_per_worker=slots)
    assert names(rig.want("a", "0", "1", "2")) == ["StartWorker"] * workers
    assert rig.want("a", "0", "1", "2") == [], "a repeated request is one request"
    assert {c.job for c in rig.want("b", *"012") if isinstance(c, rm.StartWorker)} == {JobId("b")}


def test_the_oldest_request_is_served_first() -> None:
    rig = Rig(max_workers=1)
    rig.want("a", "0")
    rig.want("b", "0")
    (grant,) = rig.register(rig.starting[0])
    assert isinstance(grant, rm.GrantSlots)
    assert grant.job == "a"
    (next_grant,) = rig.do(rm.SlotsReturned(job=JobId("a")))
    assert isinstance(next_grant, rm.GrantSlots)
    assert (next_grant.job, next_grant.leases[0].task_manager) == ("b", rig.up[0]), "the worker is used again"


def test_a_request_that_has_its_lease_is_told_again() -> None:
    rig = Rig()
    rig.ready("a", "0")
    first = rig.granted["a", "0"]
    assert names(rig.want("a", "0")) == ["GrantSlots"]
    assert rig.granted["a", "0"] == first


def test_a_lost_worker_is_announced_to_its_jobs_and_replaced_when_they_ask() -> None:
    rig = Rig()
    rig.ready("a", "0")
    (loss,) = rig.end(rig.up[0])
    assert isinstance(loss, rm.AnnounceLoss)
    assert (loss.jobs, loss.reason) == (("a",), "killed")
    assert names(rig.want("a", "0")) == ["StartWorker"]


def test_a_silent_worker_is_given_up_and_killed() -> None:
    rig = Rig()
    rig.ready("a", "0")
    assert rig.tick(1_000) == []
    commands = rig.tick(1)
    assert names(commands) == ["AnnounceLoss", "StopWorker"]
    assert "heartbeat" in commands[0].reason  # type: ignore[union-attr]


def test_a_heartbeat_keeps_a_worker() -> None:
    rig = Rig()
    rig.ready("a", "0")
    for _ in range(5):
        rig.tick(900)
        rig.beat()
    assert len(rig.up) == 1


def test_a_worker_that_does_not_come_up_is_given_up_and_tried_again_after_a_pause() -> None:
    rig = Rig()
    rig.tick()
    rig.want("a", "0")
    assert names(rig.tick(3_001)) == ["AnnounceLoss", "StopWorker"]
    assert rig.tick(START_PAUSE_MS_MIN - 1) == []
    assert names(rig.tick(1)) == ["StartWorker"]


def test_a_broken_host_is_not_hammered() -> None:
    rig = Rig()
    rig.tick()
    rig.want("a", "0")
    starts = 1
    for _ in range(240):  # a minute of quarter seconds
        if rig.starting:
            rig.end(rig.starting[0])
        starts += names(rig.tick(250)).count("StartWorker")
    assert 5 <= starts <= 9, "pauses double up to 30 s"


def test_a_worker_that_was_up_is_replaced_at_once() -> None:
    rig = Rig()
    rig.ready("a", "0")
    rig.want("a", "1")
    rig.register(rig.starting[0])
    rig.want("a", "2")
    assert names(rig.end(rig.up[0])) == ["AnnounceLoss"], "one is starting for the open request"
    assert names(rig.want("a", "0")) == ["StartWorker"]


def test_an_idle_worker_is_stopped() -> None:
    rig = Rig()
    rig.ready("a", "0")
    rig.do(rm.SlotsReturned(job=JobId("a"), requests=("0",)))
    for _ in range(6):
        rig.beat()
        assert rig.tick(800) == []
    rig.beat()
    assert names(rig.tick(800)) == ["StopWorker"]
    assert rig.end("tm-0") == [], "its end is no news"


def test_an_open_request_that_is_returned_is_not_served() -> None:
    rig = Rig()
    rig.want("a", "0")
    rig.do(rm.SlotsReturned(job=JobId("a")))
    assert rig.register(rig.starting[0]) == []


def test_no_more_workers_than_allowed() -> None:
    rig = Rig(max_workers=2)
    assert names(rig.want("a", "0", "1", "2", "3")) == ["StartWorker"] * 2


def test_unknown_workers_are_ignored() -> None:
    rig = Rig()
    rig.starting.append("stranger")
    assert rig.register("stranger") == []
    assert rig.end("stranger") == []


def test_a_worker_may_bring_more_slots_than_it_was_asked_for() -> None:
    rig = Rig()
    rig.want("a", "0", "1")
    rig.register(rig.starting[0], slots=2)
    assert len(rig.granted) == 2


def test_before_the_first_tick_no_time_has_passed() -> None:
    rig = Rig()
    rig.want("a", "0")
    assert rig.tick() == [], "the worker has only just been started"


@given(steps=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 5)), max_size=80))
@hypothesis_settings(max_examples=60, deadline=None)
def test_random_clusters_come_to_serve_every_request(steps: list[tuple[int, int]]) -> None:  # noqa: C901
    rig = Rig(slots_per_worker=2, max_workers=4)
    wanted: set[tuple[str, str]] = set()
    for kind, choice in steps:
        job = f"job{choice % 2}"
        match kind:
            case 0:
                rig.want(job, str(choice))
                wanted.add((job, str(choice)))
            case 1 if rig.starting:
                rig.register(rig.starting[choice % len(rig.starting)], slots=2)
            case 2 if rig.up:
                rig.end(rig.up[choice % len(rig.up)])
            case 3 if rig.starting:
                rig.end(rig.starting[choice % len(rig.starting)])
            case 4:
                rig.tick(choice * 300)
            case 5:
                rig.do(rm.SlotsReturned(job=JobId(job)))
                wanted = {request for request in wanted if request[0] != job}
                rig.granted = {request: w for request, w in rig.granted.items() if request[0] != job}
            case _:
                rig.beat()
    for job, key in sorted(wanted):  # what was lost is asked for again
        rig.want(job, key)
    for _ in range(200):
        for worker in list(rig.starting):
            rig.register(worker, slots=2)
        rig.beat()
        rig.tick(250)
    assert set(rig.granted) == wanted
    assert not rig.machine._requests

"""A worker that is drained gets no more slots, and ends when it has no lease."""

from __future__ import annotations

import pytest

from tests.unit.core.resource.test_resource_supply import BIG, SMALL, Cluster, names
from unistream.base.ids import JobId
from unistream.core.contract import SlotRequest
from unistream.core.resource import DRAINED
from unistream.core.resource import messages as rm


def drain(cluster: Cluster, worker: str, **how: bool | int) -> list[rm.ResourceCommand]:
    return cluster.do(rm.DrainWanted(task_manager=worker, now_ms=cluster.now_ms, **how))  # type: ignore[arg-type]


def replace(cluster: Cluster, job: str, key: str, by: str) -> list[rm.ResourceCommand]:
    request = SlotRequest(key=by, group="g", replaces=key)
    return cluster.do(rm.SlotsWanted(job=JobId(job), requests=(request,)))


def two(*, used: int = 1, free: int = 1) -> Cluster:
    """Worker `busy`, with `used` slots of job a, and worker `idle` with `free` slots."""
    cluster = Cluster(active=False)
    cluster.join("busy", slots=max(1, used))
    cluster.want("a", *(str(number) for number in range(used)))
    if free:
        cluster.join("idle", slots=free)
    return cluster


def stopped(commands: list[rm.ResourceCommand]) -> dict[str, str]:
    return {c.task_manager: c.reason for c in commands if isinstance(c, rm.StopWorker)}


def refused(commands: list[rm.ResourceCommand]) -> str:
    (refusal,) = (c for c in commands if isinstance(c, rm.RefuseDrain))
    return refusal.reason


def test_its_jobs_move_their_tasks_and_then_it_ends() -> None:
    cluster = two()
    (move,) = drain(cluster, "busy")
    assert move == rm.MoveTasks(task_manager="busy", jobs=("a",))  # type: ignore[arg-type]
    replace(cluster, "a", "0", "0:2")
    assert cluster.granted["a", "0:2"] == "idle"
    assert stopped(cluster.give_back("a", "0")) == {"busy": DRAINED}
    assert [view.task_manager for view in cluster.machine.view()] == ["idle"]


def test_it_gets_no_lease_from_then_on() -> None:
    cluster = two(used=1, free=1)
    cluster.join("big", slots=3)
    cluster.want("b", "0")
    drain(cluster, cluster.granted["b", "0"], wait=True)
    cluster.want("c", *"0123456")
    assert [w for (job, _), w in cluster.granted.items() if job == "c"].count(cluster.granted["b", "0"]) == 0


def test_an_idle_one_ends_at_once() -> None:
    assert stopped(drain(two(), "idle")) == {"idle": DRAINED}


@pytest.mark.parametrize(
    ("used", "free", "fits"), [(1, 1, True), (2, 2, True), (2, 1, False), (1, 0, False), (3, 4, True)]
)
def test_without_room_nothing_is_done(used: int, free: int, fits: bool) -> None:
    cluster = two(used=used, free=free)
    commands = drain(cluster, "busy")
    if fits:
        assert names(commands) == ["MoveTasks"]
        return
    assert f"need {used} slot" in refused(commands)
    assert f"workers have {free}" in refused(commands)
    assert not any(view.draining for view in cluster.machine.view())


def test_slots_that_are_too_small_are_no_room() -> None:
    cluster = Cluster(active=False)
    cluster.join("busy", profile=BIG)
    cluster.want("a", "0", profile=BIG)
    cluster.join("small", profile=SMALL)
    assert "other workers have 0" in refused(drain(cluster, "busy"))
    cluster.join("big", profile=BIG)
    assert names(drain(cluster, "busy")) == ["MoveTasks"]


def test_with_wait_its_jobs_wait_for_slots() -> None:
    cluster = two(free=0)
    assert names(drain(cluster, "busy", wait=True)) == ["MoveTasks"]
    replace(cluster, "a", "0", "0:2")
    assert ("a", "0:2") not in cluster.granted
    cluster.join("late")
    assert cluster.granted["a", "0:2"] == "late"


def test_wanted_twice_it_is_the_same_drain() -> None:
    cluster = two()
    drain(cluster, "busy")
    assert names(drain(cluster, "busy")) == ["MoveTasks"], "the jobs may be notified again"
    assert stopped(cluster.give_back("a", "0")) == {"busy": DRAINED}
    assert "no worker busy" in refused(drain(cluster, "busy"))


def test_slots_that_another_drain_needs_are_no_room() -> None:
    cluster = Cluster(active=False)
    for name in ("one", "two"):
        cluster.join(name)
        cluster.want("a", name)
    cluster.join("idle")
    assert names(drain(cluster, "one")) == ["MoveTasks"]
    assert "other workers have 0" in refused(drain(cluster, "two"))
    replace(cluster, "a", "one", "one:2")
    cluster.join("more")
    assert names(drain(cluster, "two")) == ["MoveTasks"], "the first has its slot by now"


class TestOneThatEndsAnyway:
    def test_it_is_given_up_at_once_without_room(self) -> None:
        cluster = two(free=0)
        commands = drain(cluster, "busy", ends=True, lasts_ms=5_000)
        assert names(commands) == ["AnnounceLoss", "StopWorker"]
        assert "need 1 slot elsewhere" in cluster.losses[-1].reason

    def test_its_jobs_have_the_time_that_it_has(self) -> None:
        cluster = two()
        assert names(drain(cluster, "busy", ends=True, lasts_ms=5_000)) == ["MoveTasks"]
        assert drain(cluster, "busy", ends=True, lasts_ms=5_000) == [], "it says it with each heartbeat"
        cluster.now_ms += 4_000
        cluster.beat()
        assert cluster.tick() == []
        cluster.now_ms += 1_000
        cluster.beat()
        assert names(cluster.tick()) == ["AnnounceLoss", "StopWorker"]
        assert "taskmanager.drain.timeout" in cluster.losses[-1].reason

    def test_one_that_was_drained_before_has_no_more_time_than_it_has(self) -> None:
        cluster = two(free=0)
        drain(cluster, "busy", wait=True)
        assert drain(cluster, "busy", ends=True, lasts_ms=1_000) == []
        cluster.now_ms += 1_000
        cluster.beat()
        assert names(cluster.tick()) == ["AnnounceLoss", "StopWorker"]


@pytest.mark.parametrize("most", [None, 2])
def test_where_workers_are_started_another_one_is(most: int | None) -> None:
    cluster = Cluster(active=True, max_workers=most)
    cluster.want("a", "0")
    cluster.join_all()
    (worker,) = cluster.up
    assert names(drain(cluster, worker)) == ["MoveTasks"]
    replace(cluster, "a", "0", "0:2")
    cluster.join_all()
    assert cluster.granted["a", "0:2"] != worker
    assert stopped(cluster.give_back("a", "0")) == {worker: DRAINED}


def test_not_beyond_the_most_workers() -> None:
    cluster = Cluster(active=True, max_workers=1)
    cluster.want("a", "0")
    cluster.join_all()
    (worker,) = cluster.up
    assert "other workers have 0" in refused(drain(cluster, worker))


def test_one_that_starts_cannot_be_drained() -> None:
    cluster = Cluster(active=True)
    cluster.want("a", "0")
    (worker,) = cluster.starting
    assert "has not registered yet" in refused(drain(cluster, worker))


def test_one_that_is_killed_meanwhile_is_a_loss() -> None:
    cluster = two()
    drain(cluster, "busy")
    assert names(cluster.end("busy")) == ["AnnounceLoss"]

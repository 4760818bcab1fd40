"""Leases and attempts in the slots of one worker: never two leases, nor two attempts of a subtask, in one."""

from __future__ import annotations

import pytest

from unistream.base.errors import UnistreamError
from unistream.base.ids import AllocationId, AttemptId, JobId, VertexId
from unistream.worker.process.slot_table import SlotTable

ONE, TWO = AllocationId("one"), AllocationId("two")


def attempt(job: str = "a", vertex: str = "v", number: int = 0) -> AttemptId:
    return AttemptId(JobId(job), VertexId(vertex), 0, number)


class Rig:
    def __init__(self, slots: int = 1) -> None:
        self.table = SlotTable(slots, 1_000)
        self.started: list[AttemptId] = []

    def begin(self, allocation: AllocationId, task: AttemptId, now_ms: int = 0) -> None:
        self.table.begin(allocation, task, lambda: self.started.append(task), now_ms)


def test_tasks_of_one_lease_share_its_slot() -> None:
    rig = Rig()
    tasks = [attempt(vertex="v"), attempt(vertex="w")]
    for task in tasks:
        rig.begin(ONE, task)
        rig.table.check(ONE, task)
    assert rig.started == tasks


def test_a_second_lease_begins_when_the_last_task_of_the_first_has_ended() -> None:
    rig = Rig()
    first = [attempt(vertex="v"), attempt(vertex="w")]
    for task in first:
        rig.begin(ONE, task)
    later = attempt("b")
    rig.begin(TWO, later)
    rig.table.leave(ONE, first[0])
    assert later not in rig.started
    rig.table.leave(ONE, first[1])
    assert rig.started[-1] == later
    assert "has ended" in (rig.table.refusal(ONE, JobId("a")) or "")


def test_as_many_leases_as_slots() -> None:
    rig = Rig(slots=2)
    rig.begin(ONE, attempt("a"))
    rig.begin(TWO, attempt("b"))
    assert len(rig.started) == 2


def test_a_new_attempt_waits_for_the_older_one() -> None:
    rig = Rig()
    old, new = attempt(number=0), attempt(number=1)
    rig.begin(ONE, old)
    rig.begin(ONE, new)
    assert rig.started == [old]
    rig.table.leave(ONE, old)
    assert rig.started == [old, new]


@pytest.mark.parametrize(
    ("allocation", "job", "says"),
    [("", "a", "names no slot"), ("one", "b", "belongs to job a"), ("one", "a", None), ("two", "b", None)],
)
def test_what_is_refused(allocation: str, job: str, says: str | None) -> None:
    rig = Rig()
    rig.begin(ONE, attempt("a"))
    refusal = rig.table.refusal(AllocationId(allocation), JobId(job))
    assert refusal is None if says is None else says in (refusal or "")


def test_one_that_waits_too_long_fails() -> None:
    rig = Rig()
    rig.begin(ONE, attempt("a"))
    late = attempt("b")
    rig.begin(TWO, late, now_ms=500)
    rig.table.expire(1_500)
    assert late not in rig.started
    rig.table.expire(1_501)
    assert late in rig.started
    with pytest.raises(UnistreamError, match=r"taskmanager\.slot\.timeout.*one of job a"):
        rig.table.check(TWO, late)


def test_one_that_is_cancelled_waits_no_longer() -> None:
    rig = Rig()
    rig.begin(ONE, attempt("a"))
    cancelled = attempt("b")
    rig.begin(TWO, cancelled)
    rig.table.hurry(cancelled)
    rig.table.leave(ONE, attempt("a"))
    assert rig.started == [attempt("a"), cancelled], "once"


def test_a_lease_without_tasks_keeps_its_slot_until_it_is_needed() -> None:
    rig = Rig()
    rig.begin(ONE, attempt(number=0))
    rig.table.leave(ONE, attempt(number=0))
    rig.begin(ONE, attempt(number=1))
    assert rig.started[-1] == attempt(number=1)


def test_a_lease_of_a_job_that_restarts_is_not_taken_for_the_one_that_is_over() -> None:
    rig = Rig(slots=2)
    restarts, ends = attempt("a"), attempt("b")
    rig.begin(ONE, restarts)
    rig.begin(TWO, ends)
    rig.table.leave(ONE, restarts)
    rig.table.leave(TWO, ends)
    rig.begin(AllocationId("three"), attempt("c"))
    assert rig.table.refusal(ONE, JobId("a")) is None

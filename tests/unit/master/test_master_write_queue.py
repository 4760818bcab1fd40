"""What waits for the database: its order, its bound, and what is dropped first."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest

from unistream.base.ids import AttemptId, JobId, VertexId
from unistream.master.service.catalogue import first_and_last
from unistream.master.service.write_queue import (
    BATCH_MAX,
    LIMITED,
    STATISTICS,
    QueuedWrite,
    WriteKind,
    WriteQueue,
)
from unistream.port.metadata import AttemptChange

JOB = JobId("a" * 32)
OTHER = JobId("b" * 32)
FACTS = set(WriteKind) - {*STATISTICS, *LIMITED}


def entry(kind: WriteKind, content: Any = None, row: Hashable = None, job: JobId = JOB) -> QueuedWrite:
    return QueuedWrite(kind, job, content, row=row)


def drained(queue: WriteQueue) -> list[list[Any]]:
    """The contents, as they would be written together."""
    found = []
    while taken := queue.take():
        found.append([one.content for one in taken])
        queue.done()
    return found


def test_what_is_put_is_taken_in_order_one_by_one() -> None:
    queue = WriteQueue()
    for n in range(4):
        queue.put(entry(WriteKind.COMMIT, n))
    assert drained(queue) == [[0], [1], [2], [3]]
    assert len(queue) == 0


def test_what_was_taken_is_taken_again_until_it_is_done() -> None:
    queue = WriteQueue()
    queue.put(entry(WriteKind.COMMIT, 1))
    queue.put(entry(WriteKind.COMMIT, 2))
    assert [queue.take()[0].content, queue.take()[0].content] == [1, 1]
    assert len(queue) == 2
    queue.done()
    assert queue.take()[0].content == 2


def test_attempts_that_follow_each_other_are_taken_together_up_to_a_limit() -> None:
    queue = WriteQueue()
    queue.put(entry(WriteKind.JOB, "job"))
    for n in range(BATCH_MAX + 5):
        queue.put(entry(WriteKind.ATTEMPT, n, row=n))
    queue.put(entry(WriteKind.COMMIT, "commit"))
    assert [len(together) for together in drained(queue)] == [1, BATCH_MAX, 5, 1]


def test_a_newer_state_takes_the_place_of_the_one_that_waits() -> None:
    queue = WriteQueue()
    queue.put(entry(WriteKind.TRIGGERED, "1 triggered", row=1))
    queue.put(entry(WriteKind.TRIGGERED, "2 triggered", row=2))
    queue.put(entry(WriteKind.CHECKPOINT, "1 completed", row=1))
    queue.put(entry(WriteKind.TRIGGERED, "1 of another job", row=1, job=OTHER))
    assert drained(queue) == [["1 completed"], ["2 triggered"], ["1 of another job"]]


def test_what_is_being_written_is_not_changed_by_a_newer_state() -> None:
    queue = WriteQueue()
    queue.put(entry(WriteKind.TRIGGERED, "triggered", row=1))
    [taken] = queue.take()
    queue.put(entry(WriteKind.CHECKPOINT, "completed", row=1))
    assert taken.content == "triggered"
    queue.done()
    assert drained(queue) == [["completed"]]


def test_statistics_are_dropped_first_the_least_useful_and_oldest() -> None:
    queue = WriteQueue(statistics_max=3)
    for kind in (WriteKind.CHECKPOINT, WriteKind.TRIGGERED, WriteKind.ATTEMPT):
        for n in range(2):
            queue.put(entry(kind, f"{kind.value} {n}", row=(kind, n)))
    assert queue.dropped == {WriteKind.ATTEMPT: 2, WriteKind.TRIGGERED: 1}
    for n in range(2, 4):
        queue.put(entry(WriteKind.CHECKPOINT, f"checkpoints {n}", row=n))
    assert queue.dropped == {WriteKind.ATTEMPT: 2, WriteKind.TRIGGERED: 2, WriteKind.CHECKPOINT: 1}
    assert drained(queue) == [["checkpoints 1"], ["checkpoints 2"], ["checkpoints 3"]]


@pytest.mark.parametrize("kind", sorted(FACTS, key=lambda kind: kind.value), ids=lambda kind: kind.value)
def test_facts_are_never_dropped(kind: WriteKind) -> None:
    queue = WriteQueue(statistics_max=1, of_job_max=1)
    for n in range(50):
        queue.put(entry(kind, n))
        queue.put(entry(WriteKind.ATTEMPT, n, row=n))
    assert [content for [content] in drained(queue) if content is not None][:50] == list(range(50))
    assert set(queue.dropped) == {WriteKind.ATTEMPT}


@pytest.mark.parametrize("kind", LIMITED)
def test_of_one_job_as_many_are_kept_as_the_metadata_keep(kind: WriteKind) -> None:
    queue = WriteQueue(of_job_max=3)
    for n in range(5):
        queue.put(entry(kind, n))
        queue.put(entry(kind, f"other {n}" if n < 2 else "", job=OTHER))
    assert queue.dropped == {kind: 4}
    assert [content for [content] in drained(queue)] == [2, "", 3, "", 4, ""]


def test_a_completed_savepoint_is_a_fact_although_it_waited_as_a_statistic() -> None:
    queue = WriteQueue(statistics_max=1)
    queue.put(entry(WriteKind.TRIGGERED, "triggered", row=1))
    queue.put(entry(WriteKind.SAVEPOINT, "savepoint", row=1))
    for n in range(2, 9):
        queue.put(entry(WriteKind.TRIGGERED, n, row=n))
    assert drained(queue) == [["savepoint"], [8]]


def test_who_waits_for_a_write_is_released_once_also_if_it_is_dropped() -> None:
    queue = WriteQueue(of_job_max=2)
    calls: list[int] = []
    for n in range(3):
        queue.put(QueuedWrite(WriteKind.STATE, JOB, n, after=[lambda n=n: calls.append(n)]))  # type: ignore[misc]
    assert calls == [0]
    for call in queue.release_all():
        call()
    assert calls == [0, 1, 2]
    assert queue.release_all() == []
    assert drained(queue) == [[1], [2]]


def change(state: str, at_ms: int, task_manager: str | None = None) -> AttemptChange:
    attempt = AttemptId(JOB, VertexId("v"), 0, 0)
    return AttemptChange(
        attempt=attempt, vertex_name="count", state=state, task_manager=task_manager, at_ms=at_ms
    )


@pytest.mark.parametrize(
    ("steps", "then"),
    [
        ([change("A", 1)], [("A", 1, None)]),
        ([change("A", 1), change("B", 2, "tm")], [("A", 1, None), ("B", 2, "tm")]),
        ([change("A", 1), change("B", 2, "tm"), change("C", 3)], [("A", 1, None), ("C", 3, "tm")]),
        ([change("A", 1, "x"), change("B", 2, "y"), change("C", 3)], [("A", 1, "x"), ("C", 3, "y")]),
    ],
)
def test_an_attempt_waits_as_its_beginning_and_its_newest_state(
    steps: list[AttemptChange], then: list[tuple[str, int, str | None]]
) -> None:
    queue = WriteQueue()
    for step in steps:
        queue.put(QueuedWrite(WriteKind.ATTEMPT, JOB, (step,), row=step.attempt, merge=first_and_last))
    [[found]] = drained(queue)
    assert [(c.state, c.at_ms, c.task_manager) for c in found] == then

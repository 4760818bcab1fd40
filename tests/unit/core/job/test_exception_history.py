"""Root causes with what failed along with them, and former attempts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unistream.base.ids import AttemptId, JobId, SubtaskId, VertexId
from unistream.core.job import AttemptsHistory, ExceptionEntry, ExceptionHistory, PastAttempt
from unistream.core.job.exception_history import CONCURRENT_MAX
from unistream.model.messages import TaskFailure


def attempt(number: int, index: int = 0) -> AttemptId:
    return AttemptId(JobId("j"), VertexId("v"), index, number)


def entry(text: str, at_ms: int = 0) -> ExceptionEntry:
    return ExceptionEntry(at_ms=at_ms, failure=TaskFailure(kind="E", message=text), attempt=attempt(0))


def shape(history: ExceptionHistory) -> list[tuple[str, list[str]]]:
    """Newest first, as people see it."""
    return [(r.cause.failure.message, [c.failure.message for c in r.concurrent]) for r in history]


def test_what_fails_along_with_another_is_shown_below_it() -> None:
    history = ExceptionHistory(16)
    history.add(entry("a"), is_root=True)
    history.add(entry("a, too"), is_root=False)
    history.add(entry("b"), is_root=True)
    history.add(entry("b, too"), is_root=False)
    history.add(entry("and this"), is_root=False)
    assert shape(history) == [("b", ["b, too", "and this"]), ("a", ["a, too"])]
    assert next(iter(history)).cause.failure.message == "b"


def kind(kind: str, text: str) -> ExceptionEntry:
    return replace(entry(text), failure=TaskFailure(kind=kind, message=text))


@pytest.mark.parametrize(
    ("root", "shown"),
    [
        ("RemoteTransportError", ("worker lost", ["first", "second"])),
        ("UserCodeError", ("first", ["second", "worker lost"])),
    ],
)
def test_a_lost_worker_takes_the_place_of_a_connection_that_broke_before_it_was_noticed(
    root: str, shown: tuple[str, list[str]]
) -> None:
    history = ExceptionHistory(16)
    history.add(entry("earlier"), is_root=True)
    history.add(kind(root, "first"), is_root=True)
    history.add(kind("RemoteTransportError", "second"), is_root=False)
    history.add(kind("TaskManagerLost", "worker lost"), is_root=False)
    found = [(cause, sorted(concurrent)) for cause, concurrent in shape(history)]
    assert found == [shown, ("earlier", [])]


def test_the_first_failure_is_a_root_cause_whatever_is_said_of_it() -> None:
    history = ExceptionHistory(2)
    assert not list(history)
    history.add(entry("a"), is_root=False)
    assert shape(history) == [("a", [])]


def test_the_oldest_go_first() -> None:
    history = ExceptionHistory(2)
    for name in "abc":
        history.add(entry(name), is_root=True)
    assert [cause for cause, _ in shape(history)] == ["c", "b"]
    assert (len(list(history)), history.dropped) == (2, 1)


def test_concurrent_failures_have_a_limit_and_are_counted_beyond_it() -> None:
    history = ExceptionHistory(1)
    history.add(entry("worker lost"), is_root=True)
    for _ in range(CONCURRENT_MAX + 5):
        history.add(entry("task of it"), is_root=False)
    assert len(next(iter(history)).concurrent) == CONCURRENT_MAX
    assert next(iter(history)).dropped == 5


def test_a_failure_that_ends_the_job_is_shown_below_the_decision() -> None:
    history = ExceptionHistory(16)
    history.suppressed("Recovery is suppressed by none; E: a", entry("a", at_ms=7))
    assert shape(history) == [("Recovery is suppressed by none; E: a", ["a"])]
    root = next(iter(history))
    assert root.cause.at_ms == 7
    assert root.cause.attempt is None
    assert root.concurrent[0].attempt == attempt(0)


def past(number: int, state: str = "FAILED", index: int = 0) -> PastAttempt:
    return PastAttempt(attempt=attempt(number, index), state=state, ended_ms=number)


def test_former_attempts_of_each_subtask_are_kept_up_to_a_limit() -> None:
    history = AttemptsHistory(2)
    for number in range(3):
        history.add(past(number))
    history.add(past(0, "FINISHED", index=1))
    assert [p.attempt.attempt for p in history.of(SubtaskId(VertexId("v"), 0))] == [1, 2]
    assert [p.state for p in history.of(SubtaskId(VertexId("v"), 1))] == ["FINISHED"]
    assert history.of(SubtaskId(VertexId("w"), 0)) == ()
    assert history.find(attempt(0)) is None
    assert history.find(attempt(2)) == past(2)


def test_an_attempt_that_ends_twice_is_one() -> None:
    history = AttemptsHistory(2)
    history.add(past(0))
    history.add(past(0, "CANCELED"))
    assert [p.state for p in history.of(SubtaskId(VertexId("v"), 0))] == ["CANCELED"]


def test_attempts_cannot_go_back() -> None:
    history = AttemptsHistory(2)
    history.add(past(1))
    with pytest.raises(AssertionError, match="in order"):
        history.add(past(0))

"""The lines that functions of a job have logged, as readers follow them."""

from __future__ import annotations

import pytest

from unistream.base.ids import AttemptId, JobId, VertexId
from unistream.master.job.job_log import JobLogBuffer
from unistream.model.job_log_line import LINES_KEPT_MAX
from unistream.model.messages import LogLine, LogReported
from unistream.testing.harness.operators import ManualClock


def reported(number: int, *messages: str, dropped: int = 0, attempt: int = 0, index: int = 0) -> LogReported:
    lines = tuple(LogLine(at_ms=5, level="INFO", logger="orders", message=text) for text in messages)
    of = AttemptId(JobId("a" * 32), VertexId("v"), index, attempt)
    return LogReported(attempt=of, number=number, lines=lines, dropped=dropped)


@pytest.fixture
def log() -> JobLogBuffer:
    return JobLogBuffer(ManualClock(1_000))


def messages(log: JobLogBuffer, after: int = 0, limit: int = LINES_KEPT_MAX) -> list[str]:
    return [line.message for line in log.after(after, limit)]


def test_lines_are_read_in_pages_behind_a_number(log: JobLogBuffer) -> None:
    log.add(reported(1, "a", "b"), "map (1/1)")
    log.add(reported(2, "c"), "map (1/1)")
    first = log.after(0, 2)
    assert [(line.message, line.task) for line in first] == [("a", "map (1/1)"), ("b", "map (1/1)")]
    assert messages(log, first[-1].seq) == ["c"]
    assert messages(log, log.after(0, 9)[-1].seq) == []


def test_a_report_that_comes_again_changes_nothing(log: JobLogBuffer) -> None:
    for report in (
        reported(1, "a"),
        reported(1, "a"),
        reported(2, "b"),
        reported(1, "a"),
        reported(1, "of a restart", attempt=1),
        reported(2, "b"),
        reported(1, "of another subtask", index=1),
    ):
        log.add(report, "map")
    assert messages(log) == ["a", "b", "of a restart", "of another subtask"]


def test_what_was_dropped_is_said_by_the_next_line_of_the_task(log: JobLogBuffer) -> None:
    log.add(reported(1, "a", dropped=5), "first")
    log.add(reported(2, dropped=2), "first")
    log.add(reported(1, "x", index=1), "second")
    log.add(reported(3, "b", "c"), "first")
    assert [(line.message, line.dropped) for line in log.after(0, 9)] == [
        ("a", 0),
        ("x", 0),
        ("b", 7),
        ("c", 0),
    ]


def test_the_newest_are_kept(log: JobLogBuffer) -> None:
    for number in range(1, 13):
        log.add(reported(number, *(f"{number}.{n}" for n in range(100))), "map")
    assert len(messages(log)) == LINES_KEPT_MAX
    assert messages(log)[0] == "3.0"


def test_a_later_leader_has_higher_numbers(log: JobLogBuffer) -> None:
    log.add(reported(1, "a"), "map")
    later = JobLogBuffer(ManualClock(2_000))
    later.add(reported(1, "b"), "map")
    assert messages(later, log.after(0, 1)[-1].seq) == ["b"]

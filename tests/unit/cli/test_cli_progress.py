"""What is reported of a job that runs attached while it keeps failing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from unistream.base.ids import JobId, LineageId
from unistream.cli.progress import FAILURES_SHOWN, Restarts
from unistream.master.job_info import ExceptionInfo, JobInfo


def failure(at: int, message: str = "odd", task: str | None = "map (1/2) - execution #3") -> ExceptionInfo:
    return ExceptionInfo(
        at_ms=at, kind="UserCodeError", message=message, traceback="", attempt=f"a{at}", task_name=task
    )


def info(state: str, *newest_first: ExceptionInfo) -> JobInfo:
    return JobInfo(
        job=JobId("0123456789abcdef0123456789abcdef"),
        name="job",
        lineage=LineageId("l"),
        state=state,
        target="local",
        submitted_ms=0,
        exceptions=newest_first,
    )


A, B = failure(1, "first\nand its details"), failure(2, "second")
MANY = [failure(at) for at in range(FAILURES_SHOWN + 5, 0, -1)]


@pytest.mark.parametrize(
    ("looks", "reported"),
    [
        pytest.param([info("RUNNING")], [0], id="nothing failed"),
        pytest.param([info("RESTARTING", A)], [1], id="a failure"),
        pytest.param([info("RESTARTING", A), info("RUNNING", A)], [1, 0], id="each is reported once"),
        pytest.param([info("RUNNING", A), info("RUNNING", B, A)], [1, 1], id="the next one, too"),
        pytest.param([info("RUNNING", B, A)], [2], id="two at once"),
        pytest.param(
            [info("RUNNING", A), info("RUNNING", *MANY)], [1, FAILURES_SHOWN + 1], id="many at once"
        ),
        pytest.param([info("FAILED", A)], [0], id="the end is reported with the result"),
        pytest.param([info("FAILING", A)], [0], id="so is an end that is on its way"),
        pytest.param(
            [info("RUNNING", A), info("FAILED", B, A)], [1, 0], id="a failure before that was reported"
        ),
        pytest.param([info("FAILED", B, A)], [1], id="a failure before that was not reported"),
        pytest.param([info("FINISHED", B, A)], [2], id="a good end after failures"),
    ],
)
def test_how_many_lines(looks: Sequence[JobInfo], reported: list[int]) -> None:
    restarts = Restarts()
    lines = [restarts.new_lines(look) for look in looks]
    assert [len(one) for one in lines] == reported
    assert not any("\n" in line for one in lines for line in one)


def test_a_line_names_task_and_cause_the_oldest_first() -> None:
    first, second = Restarts().new_lines(info("RUNNING", B, A))
    assert first.endswith("map (1/2) - execution #3 failed and restarts: UserCodeError: first")
    assert second.endswith("UserCodeError: second")


def test_a_failure_of_the_whole_job_has_no_task() -> None:
    entry = ExceptionInfo(at_ms=1, kind="Unreachable", message="no slots", traceback="")
    [line] = Restarts().new_lines(info("RUNNING", entry))
    assert "the job failed and restarts: Unreachable: no slots" in line


def test_what_is_left_out_is_counted() -> None:
    [more, *lines] = Restarts().new_lines(info("RUNNING", *MANY))
    assert more == "5 more failures: unistream exceptions 01234567"
    assert len(lines) == FAILURES_SHOWN

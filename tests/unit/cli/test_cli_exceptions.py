"""`unistream exceptions` of jobs that no screen shows."""

from __future__ import annotations

from msgspec.structs import replace

from tests.unit.cli import screens
from unistream.cli.exceptions import shown
from unistream.model.job_info import ExceptionInfo

NEVER_FAILED = replace(screens.job("history"), exceptions=())
WHOLE = ExceptionInfo(at_ms=0, kind="JobFailed", message="Recovery is suppressed by [none]\nsecond line")


def test_a_job_that_never_failed_says_so() -> None:
    assert list(shown(NEVER_FAILED, 0)) == [f"job {NEVER_FAILED.job} has not failed so far"]


def test_a_failure_of_the_whole_job_has_no_place_and_no_traceback() -> None:
    page = screens.printed(shown(replace(NEVER_FAILED, exceptions=(WHOLE,)), 0), 100, color=False)
    head, line = (text.split("  ") for text in page.splitlines())
    assert [cell.strip() for cell in head if cell] == ["TIME", "TASK", "WHERE", "WHAT"]
    assert line[1].strip() == "the job"
    assert line[-1].strip() == "JobFailed: Recovery is suppressed by [none]"

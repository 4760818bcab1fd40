"""`unistream exceptions`, as people and as programs see it."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from unistream.base.ids import JobId, LineageId, VertexId
from unistream.cli.exceptions import failures, past_attempts, print_exceptions
from unistream.master.job_info import ExceptionInfo, JobInfo, PastAttemptInfo, SubtaskInfo

CONCURRENT = ExceptionInfo(
    at_ms=2_000, kind="TaskManagerLost", message="gone", task_name="map (2/2) - execution #0"
)
ROOT = ExceptionInfo(
    at_ms=1_000,
    kind="UserCodeError",
    message="row 3 is [bad]\nsecond line",
    traceback="Traceback:\n  at map",
    task_name="map (1/2) - execution #0",
    task_manager="tm-1",
    endpoint="127.0.0.1:4000",
    concurrent=(CONCURRENT,),
)
WHOLE = ExceptionInfo(at_ms=0, kind="JobFailed", message="Recovery is suppressed by none")


def printed(*roots: ExceptionInfo) -> list[list[str]]:
    """Columns of each line."""
    out = Console(file=StringIO(), width=250, highlight=False)
    out.print(failures(roots))
    text = out.file.getvalue()  # type: ignore[attr-defined]
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()]


def test_former_attempts_are_listed_with_where_and_why() -> None:
    past = (
        PastAttemptInfo(
            attempt=0, state="FAILED", ended_ms=0, task_manager="tm-1", failure="Boom: [x]\nat y"
        ),
        PastAttemptInfo(attempt=1, state="CANCELED", ended_ms=0, task_manager="tm-2"),
    )
    subtask = SubtaskInfo(
        vertex=VertexId("v"), vertex_name="map", index=1, attempt=2, state="RUNNING", past=past
    )
    out = Console(file=StringIO(), width=250, highlight=False)
    out.print(past_attempts([subtask]))
    text = out.file.getvalue()  # type: ignore[attr-defined]
    _, first, second = [
        [cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()
    ]
    assert [first[0], first[1], *first[3:]] == ["map #1", "0", "FAILED", "tm-1", "Boom: [x]"]
    assert [second[1], *second[3:]] == ["1", "CANCELED", "tm-2"]


def test_what_failed_along_with_another_is_below_it() -> None:
    head, root, concurrent, whole = printed(ROOT, WHOLE)
    assert head == ["TIME", "TASK", "WHERE", "WHAT"]
    assert root[1:] == [
        "map (1/2) - execution #0",
        "tm-1 at 127.0.0.1:4000",
        "UserCodeError: row 3 is [bad]",
    ]
    assert concurrent[0].startswith("+ ")
    assert concurrent[1:] == ["map (2/2) - execution #0", "TaskManagerLost: gone"]
    assert whole[1:] == ["the job", "JobFailed: Recovery is suppressed by none"]


def job_info(*roots: ExceptionInfo) -> JobInfo:
    return JobInfo(
        job=JobId("0" * 32),
        name="n",
        lineage=LineageId("l"),
        state="RUNNING",
        target="local",
        submitted_ms=0,
        exceptions=roots,
    )


def test_the_newest_traceback_follows(capsys: pytest.CaptureFixture[str]) -> None:
    print_exceptions(job_info(ROOT, WHOLE))
    assert capsys.readouterr().out.endswith("the latest, UserCodeError\nTraceback:\n  at map\n")


def test_a_job_that_never_failed_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_exceptions(job_info())
    assert capsys.readouterr().out == f"job {'0' * 32} has not failed so far\n"

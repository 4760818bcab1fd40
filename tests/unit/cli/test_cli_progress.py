"""What a person sees of a job that runs attached: its stages, and its failures."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from msgspec import structs
from rich.console import Console

from unistream.base.ids import JobId, LineageId
from unistream.cli.progress import STAGES_SHOWN_MAX, Restarts, line, shows_stages, stage_bars
from unistream.client.job.reported import FAILURES_SHOWN
from unistream.model.bounded import StageProgress
from unistream.model.job_info import ExceptionInfo, JobInfo


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


def shown(*stages: StageProgress) -> str:
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(stage_bars(structs.replace(info("RUNNING"), job_type="BATCH", stages=stages)))
    return console.export_text()


def test_a_job_on_spark_has_a_line_for_each_stage() -> None:
    text = shown(
        StageProgress(name="rows -> map", tasks=4, finished=4, rows_out=1_200, shuffle_bytes=2**21),
        StageProgress(name="count", tasks=4, running=2, finished=1, failed=1, rows_out=7),
        StageProgress(name="committer", tasks=1),
    )
    first, second, third = (" ".join(line.split()) for line in text.splitlines())
    assert first.startswith("rows -> map")
    assert first.endswith("4/4 tasks 1,200 rows out 2.1 MB shuffled")
    assert second.endswith("1/4 tasks, 1 failed 7 rows out")
    assert third.endswith("0/1 tasks")


def test_of_many_stages_those_that_run_are_shown() -> None:
    stages = [StageProgress(name=f"stage {n}", tasks=1, finished=int(n < 30)) for n in range(40)]
    lines = shown(*stages).splitlines()
    assert len(lines) == STAGES_SHOWN_MAX
    assert lines[-1].startswith("stage 30 ")


def test_a_batch_job_shows_no_checkpoints() -> None:
    assert "checkpoints" not in line(structs.replace(info("RUNNING"), job_type="BATCH"))
    assert "checkpoints" in line(info("RUNNING"))


@pytest.mark.parametrize(
    ("job_type", "finished", "shown"),
    [
        ("BATCH", (), False),
        ("BATCH", (2, 0), True),
        ("BATCH", (2, 2), True),
        ("STREAMING", (), False),
        ("STREAMING", (2, 1), True),
        ("STREAMING", (2, 3), False),
    ],
)
def test_the_stages_of_a_bounded_part_are_shown_until_the_stream_begins(
    job_type: str, finished: tuple[int, ...], *, shown: bool
) -> None:
    stages = tuple(StageProgress(name="stage", tasks=2, finished=count) for count in finished)
    assert shows_stages(structs.replace(info("RUNNING"), job_type=job_type, stages=stages)) is shown


def test_what_is_compiled_before_the_first_record_is_said():
    running = info("RUNNING")
    at_work = structs.replace(running, metrics={"compiling": 2, "in.pendingRecords": 0})
    assert line(running) == "RUNNING · 0/0 tasks running · 0 checkpoints"
    assert line(at_work).endswith("0 checkpoints · compiling what reads records, once on this machine")
    assert at_work.records_behind is None, "the other workers have not said theirs"
    assert not structs.replace(at_work, state="FINISHED").is_compiling

"""What a run's log says of its job: stages that have finished, failures that it has recovered from."""

from __future__ import annotations

import pytest
from msgspec import structs

from unistream.base.ids import JobId, LineageId, VertexId
from unistream.dagster.run.lines import (
    FAILURE_LINES_A_DAY,
    FUNCTION_LINES_A_DAY,
    FUNCTION_LINES_MAX,
    MESSAGE_CHARS_MAX,
    FailureLines,
    FunctionLines,
    StageLines,
)
from unistream.model.bounded import StageProgress
from unistream.model.job_info import ExceptionInfo, JobInfo, SubtaskInfo
from unistream.model.job_log_line import JobLogLine

INFO = JobInfo(
    job=JobId("a" * 32), name="rows", lineage=LineageId("l"), state="RUNNING", target="local", submitted_ms=0
)


def failure(at_ms: int, message: str = "no space", **more: object) -> ExceptionInfo:
    return structs.replace(ExceptionInfo(at_ms=at_ms, kind="OSError", message=message), **more)


def seen(*at_ms: int, state: str = "RUNNING", task: str = "RUNNING") -> JobInfo:
    """A job with failures at these times, which it shows newest first."""
    subtask = SubtaskInfo(vertex=VertexId("v"), vertex_name="map", index=0, attempt=0, state=task)
    failures = tuple(failure(at, f"number {at}") for at in sorted(at_ms, reverse=True))
    return structs.replace(INFO, state=state, exceptions=failures, subtasks=(subtask,))


def line(at_ms: int) -> str:
    return f"the job has recovered from OSError: number {at_ms}"


def before(count: int) -> str:
    return f"the job has recovered from {count} failures before these: 'unistream exceptions {INFO.job}'"


@pytest.mark.parametrize(
    ("looks", "lines"),
    [
        pytest.param([(seen(), 0), (seen(), 20)], [[], []], id="none"),
        pytest.param([(seen(1, 2), 0), (seen(1, 2), 20)], [[], []], id="before this run"),
        pytest.param([(seen(1), 0), (seen(1, 2), 1), (seen(1, 2), 20)], [[], [line(2)], []], id="each once"),
        pytest.param(
            [(seen(), 0), (seen(1, state="RESTARTING"), 1), (seen(1, task="DEPLOYING"), 2), (seen(1), 3)],
            [[], [], [], [line(1)]],
            id="when all tasks run again",
        ),
        pytest.param(
            [(seen(), 0), (seen(1), 1), (seen(1, 2), 2), (seen(1, 2), 10.9), (seen(1, 2), 11)],
            [[], [line(1)], [], [], [line(2)]],
            id="ten seconds apart",
        ),
        pytest.param(
            [(seen(), 0), (seen(1, 2, 3), 1)], [[], [line(1), line(2), line(3)]], id="three, oldest first"
        ),
        pytest.param(
            [(seen(), 0), (seen(1, 2, 3, 4), 1), (seen(1, 2, 3, 4, 5), 30)],
            [[], [before(2), line(3), line(4)], [line(5)]],
            id="of many the newest",
        ),
        pytest.param(
            [(seen(), 0), (seen(1), 1), (seen(1, 2), 2), (seen(1, 2, 3), 3), (seen(2, 3, 4, 5), 30)],
            [[], [line(1)], [], [], [before(2), line(4), line(5)]],
            id="many in several looks, in a history that forgets",
        ),
        pytest.param(
            [(seen(), 0), (seen(1), 1), (seen(1, 2, state="FINISHED", task="FINISHED"), 2)],
            [[], [line(1)], [line(2)]],
            id="it has finished",
        ),
        pytest.param(
            [(seen(), 0), (seen(1, state="FAILED", task="FAILED"), 1)], [[], []], id="it has not recovered"
        ),
        pytest.param(
            [(seen(1), 0), (seen(), 1), (seen(2), 2)], [[], [], [line(2)]], id="the history was away"
        ),
    ],
)
def test_failures_are_lines(looks: list[tuple[JobInfo, float]], lines: list[list[str]]) -> None:
    failures = FailureLines()
    assert [failures.new_lines(info, now_s=now_s) for info, now_s in looks] == lines


@pytest.mark.parametrize(
    ("happened", "text"),
    [
        (failure(1), "OSError: no space"),
        (failure(1, task_name="map (1/2) - execution #0"), "OSError in map (1/2) - execution #0: no space"),
        (failure(1, endpoint="10.0.0.7:6122"), "OSError on 10.0.0.7:6122: no space"),
        (failure(1, "no space\nat all"), "OSError: no space"),
        (failure(1, "x" * 500), f"OSError: {'x' * MESSAGE_CHARS_MAX}…"),
        (failure(2, concurrent=(failure(2), failure(3))), "OSError: no space, and 2 more at the same time"),
    ],
    ids=["the job", "a task", "a worker", "several lines", "a long message", "concurrent ones"],
)
def test_a_line_says_what_and_where(happened: ExceptionInfo, text: str) -> None:
    failures = FailureLines()
    failures.new_lines(INFO, now_s=0)
    found = failures.new_lines(structs.replace(INFO, exceptions=(happened,)), now_s=1)
    assert found == [f"the job has recovered from {text}"]


def test_each_stage_of_a_job_on_spark_is_a_line_when_it_has_finished() -> None:
    def with_stages(*finished: int) -> JobInfo:
        stages = tuple(
            StageProgress(name=name, tasks=2, finished=done, rows_in=5, rows_out=done, shuffle_bytes=9)
            for name, done in zip("abc", finished, strict=True)
        )
        return structs.replace(INFO, stages=stages)

    lines = StageLines()
    assert lines.new_lines(with_stages(1, 0, 0)) == []
    assert lines.new_lines(with_stages(2, 1, 0)) == [
        "stage 1 of 3 (a) has finished: 2 tasks, 5 rows in, 2 rows out, 9 bytes shuffled"
    ]
    assert lines.new_lines(with_stages(2, 1, 0)) == []
    assert [text[:18] for text in lines.new_lines(with_stages(2, 2, 2))] == [
        "stage 2 of 3 (b) h",
        "stage 3 of 3 (c) h",
    ]


def logged(seq: int, *, dropped: int = 0) -> JobLogLine:
    return JobLogLine(
        seq=seq,
        at_ms=0,
        level="WARNING",
        logger="orders",
        task="map (1/1)",
        message=f"number {seq}",
        dropped=dropped,
    )


def test_lines_of_functions_are_shown_once_and_of_many_the_newest() -> None:
    kept: list[JobLogLine] = []
    lines = FunctionLines(lambda after: [one for one in kept if one.seq > after], "orders")
    assert lines.new_lines(now_s=0) == []
    kept.append(logged(1))
    assert lines.new_lines(now_s=10) == [("WARNING", "map (1/1), orders: number 1")]
    assert lines.new_lines(now_s=20) == []
    kept += [logged(seq) for seq in range(2, FUNCTION_LINES_MAX + 5)]
    kept.append(logged(FUNCTION_LINES_MAX + 5, dropped=7))
    more, *shown = lines.new_lines(now_s=30)
    assert more == ("INFO", "11 more lines were logged: 'unistream logs orders' shows those that are kept")
    assert len(shown) == FUNCTION_LINES_MAX
    assert shown[-1][1].endswith(f"number {FUNCTION_LINES_MAX + 5}")


def test_a_function_that_logs_all_the_time_fills_no_database() -> None:
    """A week, 500 lines each 10 s: how many are shown, and that none is left out in silence."""
    seq = 0

    def read(after: int) -> list[JobLogLine]:
        nonlocal seq
        seq += 1
        return [logged(seq, dropped=499)]

    lines, days = FunctionLines(read, "orders"), 7
    found: list[tuple[str, str]] = []
    for look in range(days * 8_640):
        found += lines.new_lines(now_s=10.0 * look)
    shown = [text for _, text in found if text.startswith("map")]
    said = [int(text.split()[0].replace(",", "")) for _, text in found if "more lines" in text]
    assert len(found) <= (days + 1) * FUNCTION_LINES_A_DAY + days * 24 + 1
    assert len(shown) >= days * FUNCTION_LINES_A_DAY // 4, "it goes on saying something"
    assert days * 24 - 24 <= len(said)
    assert seq * 500 - (len(shown) + sum(said)) < 360 * 500, "at most those of the last hour are not said yet"
    assert any(
        "this log takes some 2,000 of them a day: 'unistream logs orders'" in text for _, text in found
    )
    last = lines.new_lines(now_s=10.0 * days * 8_640, is_end=True)
    assert last[-1][1].endswith(f"number {seq}"), "the last line of a job is always shown"


def test_a_job_that_fails_all_the_time_fills_no_database() -> None:
    """A day of a failure a second; all of them are counted."""
    failures, shown = FailureLines(), 0
    lines: list[str] = []
    failures.new_lines(seen(), now_s=0)
    for second in range(1, 86_401, 5):
        lines += failures.new_lines(seen(*range(second, second + 5)), now_s=second)
    counted = sum(int(text.split()[5]) for text in lines if " before these" in text)
    shown = sum(" before these" not in text for text in lines)
    assert len(lines) <= 2 * FAILURE_LINES_A_DAY
    assert 86_400 - (counted + shown) < 2_000, "but those that wait for their line"

"""The archive of an ended job: what it holds, how large it gets, and what is done with a strange one."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from unistream.base.ids import CheckpointId, JobId, LineageId, TaskManagerId, VertexId
from unistream.master.shown.archive import CONTENT_BYTES_MAX, FORMAT, archived, restored
from unistream.model.checkpoint_figures import (
    CheckpointFigures,
    CheckpointsInfo,
    SnapshotStatus,
    SubtaskFigures,
    VertexFigures,
)
from unistream.model.job_info import ExceptionInfo, JobInfo, PastAttemptInfo, SubtaskInfo, TaskManagerInfo
from unistream.model.messages import TaskFailure, TaskMetrics
from unistream.model.snapshot_kind import SnapshotKind

JOB = JobId("a" * 32)
ENDED_MS = 9


def subtask(number: int, past: int = 0) -> SubtaskInfo:
    return SubtaskInfo(
        vertex=VertexId(f"{number // 4:032x}"),
        vertex_name=f"vertex {number // 4}",
        index=number % 4,
        attempt=past,
        state="FINISHED" if number % 2 else "FAILED",
        task_manager=TaskManagerId("tm-1"),
        metrics=TaskMetrics(records_in=number, user={"late": 1}),
        past=tuple(
            PastAttemptInfo(attempt=n, state="FAILED", ended_ms=n, failure="f" * 99) for n in range(past)
        ),
    )


def failed(number: int, chars: int = 10) -> ExceptionInfo:
    text = "x" * chars
    return ExceptionInfo(at_ms=number, kind="ValueError", message=text, traceback=text)


def figures(number: int, subtasks: int) -> CheckpointFigures:
    acked = tuple(SubtaskFigures(index=n, acked_after_ms=1, state_bytes=3) for n in range(subtasks))
    return CheckpointFigures(
        checkpoint_id=CheckpointId(number),
        kind=SnapshotKind.CHECKPOINT,
        status=SnapshotStatus.COMPLETED,
        timestamp_ms=1,
        duration_ms=1,
        path="/chk",
        vertices=(VertexFigures(vertex=VertexId("0" * 32), name="v", subtasks=acked),) if subtasks else (),
    )


def info(**changes: Any) -> JobInfo:
    given: dict[str, Any] = {
        "job": JOB,
        "name": "delays",
        "lineage": LineageId("l"),
        "state": "FAILED",
        "target": "local",
        "submitted_ms": 1,
        "ended_ms": ENDED_MS,
        "state_times": {"INITIALIZING": 1, "FAILED": ENDED_MS},
        "subtasks": (subtask(0), subtask(1, past=2)),
        "late_rows": {"window": 4},
        "savepoint": "/sp",
        "failure": TaskFailure(kind="K", message="m"),
    }
    return JobInfo(**{**given, **changes})


def checkpoints(count: int = 2, subtasks: int = 2) -> CheckpointsInfo:
    latest = tuple(figures(number, subtasks) for number in range(count, 0, -1))
    return CheckpointsInfo(completed=count, latest=latest, latest_completed=latest[0])


def test_an_archive_reads_back_as_it_was() -> None:
    record = archived(info(), checkpoints())
    assert (record.job, record.format, record.ended_ms) == (JOB, FORMAT, ENDED_MS)
    assert record.tasks == {"FAILED": 1, "FINISHED": 1}
    document = restored(record, ENDED_MS)
    assert document is not None
    assert (document.info, document.checkpoints) == (info(), checkpoints())


def test_what_ends_with_the_cluster_is_not_kept() -> None:
    ends = {"task_managers": (TaskManagerInfo(id="tm", slots=1),), "engine_page": "http://driver:4040"}
    document = restored(archived(info(**ends), checkpoints()), 9)
    assert document is not None
    assert document.info.task_managers == ()
    assert document.info.engine_page is None


def test_text_that_json_cannot_hold_is_escaped() -> None:
    document = restored(
        archived(info(exceptions=(failed(1), replace(failed(2), message="\ud800 \0"))), checkpoints()), 9
    )
    assert document is not None
    assert [one.message for one in document.info.exceptions] == ["x" * 10, "\\ud800 \0"]


@pytest.mark.parametrize(
    ("large", "missing"),
    [
        pytest.param((info(), checkpoints(10, 2_000)), "tasks of checkpoints", id="checkpoints"),
        pytest.param(
            (info(subtasks=tuple(subtask(n, past=16) for n in range(600))), checkpoints()),
            "tasks of checkpoints, former attempts",
            id="attempts",
        ),
        pytest.param(
            (info(exceptions=tuple(failed(n, 100_000) for n in range(16))), checkpoints()),
            "tasks of checkpoints, former attempts, the rest of long messages",
            id="messages",
        ),
        pytest.param(
            (info(subtasks=tuple(map(subtask, range(40_000)))), checkpoints()),
            "tasks of checkpoints, former attempts, the rest of long messages, a part of the subtasks",
            id="10,000 vertices of 4 subtasks",
        ),
        pytest.param(
            (info(late_rows={"w" * 99 + str(n): n for n in range(20_000)}, name="n" * 10**7), checkpoints()),
            "tasks of checkpoints, former attempts, the rest of long messages, a part of the subtasks, "
            "all but the facts",
            id="anything",
        ),
    ],
)
def test_what_does_not_fit_is_left_out_and_named(
    large: tuple[JobInfo, CheckpointsInfo], missing: str
) -> None:
    record = archived(*large)
    assert len(record.content.encode()) <= CONTENT_BYTES_MAX
    assert sum(record.tasks.values()) == len(large[0].subtasks), "a list shows all"
    document = restored(record, ENDED_MS)
    assert document is not None
    assert document.info.incomplete == f"its archive was too large and lacks {missing}"
    assert (document.info.state, document.info.savepoint) == ("FAILED", "/sp")
    assert document.checkpoints.completed == large[1].completed


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"format": FORMAT + 1}, id="of a newer version"),
        pytest.param({"content": "{"}, id="cut off"),
        pytest.param({"content": '{"info": 3}'}, id="of another shape"),
        pytest.param({"ended_ms": 1}, id="of an earlier end"),
    ],
)
def test_an_archive_that_cannot_be_used_is_none(changes: dict[str, Any]) -> None:
    record = archived(info(), checkpoints())
    assert restored(replace(record, **changes), ENDED_MS) is None


def test_there_may_be_none() -> None:
    assert restored(None, ENDED_MS) is None

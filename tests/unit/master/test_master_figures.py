"""The figures of the list of jobs: what is not known is null, never 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.eventually import WAIT_S, eventually
from tests.unit.master.served_cluster import Api
from unistream.base.ids import CheckpointId, JobId, LineageId, OperatorUid, VertexId
from unistream.master.job_info import CheckpointInfo, ExceptionInfo, JobInfo, SubtaskInfo
from unistream.model import messages as mm
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.metrics import COMPILING, PENDING_RECORDS, PENDING_UNKNOWN
from unistream.rest.figures import figures_of

IDLE = JobInfo(
    job=JobId("a" * 32), name="n", lineage=LineageId("l"), state="RUNNING", target="mini", submitted_ms=1
)


def subtask(vertex: str, source: str | None = None, **metrics: Any) -> SubtaskInfo:
    return SubtaskInfo(
        vertex=VertexId(vertex * 32),
        vertex_name=vertex,
        index=0,
        attempt=0,
        state="RUNNING",
        source=source,
        metrics=mm.TaskMetrics(**metrics),
    )


def checkpoint(number: int, state: str) -> CheckpointInfo:
    return CheckpointInfo(
        checkpoint_id=CheckpointId(number), kind=SnapshotKind.CHECKPOINT, state=state, triggered_ms=number
    )


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        pytest.param({}, {"rows_read": 0, "rows_committed": None, "watermark_ms": None}, id="nothing yet"),
        pytest.param(
            {"subtasks": (subtask("a", "in", records_in=5), subtask("b", records_in=5, records_out=9))},
            {"rows_read": 5},
            id="rows that operators pass on are not read twice",
        ),
        pytest.param({"metrics": {"rows_committed": 0}}, {"rows_committed": 0}, id="counted, and none yet"),
        pytest.param(
            {"metrics": {f"in.{PENDING_RECORDS}": 7, f"in.{PENDING_UNKNOWN}": 1}},
            {"behind": None},
            id="a part of what is behind is not all of it",
        ),
        pytest.param({"metrics": {f"in.{PENDING_RECORDS}": 7}}, {"behind": 7}, id="behind"),
        pytest.param({"metrics": {COMPILING: 1}}, {"compiling": True, "behind": None}, id="compiling"),
        pytest.param(
            {
                "subtasks": (
                    subtask("a", busy_per_s=200, backpressured_per_s=800),
                    subtask("b", busy_per_s=1_012, backpressured_per_s=0),
                )
            },
            {"busiest": 1.0, "most_held_back": 0.8},
            id="the worst subtask counts",
        ),
        pytest.param(
            {
                "checkpoints": tuple(
                    checkpoint(n, state)
                    for n, state in (
                        (5, "failed"),
                        (4, "triggered"),
                        (3, "failed"),
                        (2, "completed"),
                        (1, "failed"),
                    )
                )
            },
            {"checkpoint": checkpoint(2, "completed"), "failed_since": 2},
            id="failed since the newest that is complete",
        ),
        pytest.param(
            {"checkpoints": (checkpoint(1, "failed"),)},
            {"checkpoint": None, "failed_since": 1},
            id="none is complete",
        ),
        pytest.param(
            {"writes": {OperatorUid("b"): ("file:///b",), OperatorUid("a"): ("file:///a", "file:///b")}},
            {"writes": ("file:///a", "file:///b")},
            id="tables, each once",
        ),
        pytest.param(
            {
                "exceptions": (
                    ExceptionInfo(at_ms=2, kind="UserCodeError", message="b\nmore"),
                    ExceptionInfo(at_ms=1, kind="TaskLost", message="a"),
                )
            },
            {"failure": "UserCodeError: b"},
            id="the last failure, in one line",
        ),
    ],
)
def test_figures(changes: dict[str, Any], wanted: dict[str, Any]) -> None:
    found = figures_of(msgspec.structs.replace(IDLE, **changes))
    assert {name: getattr(found, name) for name in wanted} == wanted


def test_jobs_that_have_ended_have_none(api: Api, submission: Callable[..., Any]) -> None:
    dispatcher = api.cluster.dispatcher
    runs, ended = dispatcher.submit(submission()), dispatcher.submit(submission())
    dispatcher.cancel(ended)
    assert dispatcher.wait(ended, WAIT_S)
    eventually(lambda: dispatcher.job(runs).state == "RUNNING", "it runs")
    shown = api.get("/unistream/overview")
    figures = {line["summary"]["job"]: line["figures"] for line in shown["jobs"]}
    assert figures[ended] is None
    assert figures[runs]["behind"] is None
    assert shown["workers"] == len(dispatcher.task_managers()) > 0
    assert (shown["slots"] > shown["free_slots"], shown["notes"]) == (True, [])

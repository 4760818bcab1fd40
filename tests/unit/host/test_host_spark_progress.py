"""What is said of the tasks of a bounded job while Spark runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from unistream.base.ids import AttemptId, JobId, LineageId, SubtaskId, VertexId
from unistream.host.spark_progress import PlannedStage, RunProgress
from unistream.host.spark_status import SparkStage, SparkTask
from unistream.host.spark_tasks import Reported, Reports
from unistream.model.bounded import (
    AttemptsChanged,
    BoundedJob,
    EngineReport,
    PlaceReport,
    RunFailed,
    StageProgress,
)
from unistream.model.graph import JobGraph
from unistream.model.messages import CommitReported, LogLine, LogReported, TaskFailure, TaskMetrics
from unistream.port.engine import EngineRun

JOB = JobId("j")
SUBTASKS = tuple(SubtaskId(VertexId("v"), index) for index in range(2))
BOUNDED = BoundedJob(
    job=JOB,
    lineage=LineageId("l"),
    graph=JobGraph(name="g", vertices=(), edges=()),
    artifact=b"",
    sha256="",
    splits={},
    memory_bytes=0,
)
BROKEN = TaskFailure(kind="UserCodeError", message="row 77 is not good", recoverable=False)
ENDED = SparkStage(id=0, attempt=0, tasks=2, running=0, finished=2, failed=0, shuffle_bytes=0)


class Collected:
    """All that a run says, in order."""

    def __init__(self) -> None:
        self.states: list[tuple[SubtaskId, str]] = []
        self.counted: list[SubtaskId] = []
        self.lines: list[tuple[AttemptId, str]] = []

    def report(self, report: EngineReport) -> None:
        assert isinstance(report, AttemptsChanged)
        self.states += [(one.attempt.subtask, one.state) for one in report.attempts]
        finished = {one.attempt.subtask for one in report.attempts if one.state == "FINISHED"}
        assert finished <= set(self.counted), "the final counters come before the report that it has finished"

    def metrics(self, attempt: AttemptId, _metrics: TaskMetrics) -> None:
        self.counted.append(attempt.subtask)

    def committed(self, _report: CommitReported) -> None: ...

    def logged(self, report: LogReported) -> None:
        self.lines += [(report.attempt, line.message) for line in report.lines]

    def progress(self, _stages: Sequence[StageProgress]) -> None: ...

    def page(self, _url: str | None) -> None: ...


def line(text: str) -> LogLine:
    return LogLine(at_ms=1, level="INFO", logger="orders", message=text)


class EndsAtALook:
    """Spark, whose tasks end at a moment when it is asked: their reports are there then, and were not before.
    A task that reports a failure has succeeded for Spark."""

    def __init__(self, look: str) -> None:
        self.value: Reports = {}
        self._look = look

    def _ends(self, look: str) -> None:
        if look == self._look:
            for place, failure in enumerate((None, BROKEN)):
                attempt = AttemptId(JOB, VertexId("v"), place, 900)  # a number of Spark's
                log = LogReported(attempt=attempt, number=1, lines=(line(f"from {place}"),))
                report = PlaceReport(subtask=SUBTASKS[place], failure=failure, log=(log,))
                self.value[0, place] = msgspec.msgpack.encode(Reported(0, place, 10 + place, report))

    def stages(self) -> list[SparkStage]:
        self._ends("stages")
        return [ENDED]

    def tasks(self, _stage: SparkStage) -> list[SparkTask]:
        self._ends("tasks")
        states = ["SUCCESS" if self.value else "RUNNING"] * 2
        return [SparkTask(10 + place, place, state, "0", "here") for place, state in enumerate(states)]


@pytest.mark.parametrize("look", ["stages", "tasks"])
def test_a_task_that_reports_a_failure_has_not_finished_whenever_it_ends(look: str) -> None:
    said, cancelled = Collected(), list[str]()
    spark: Any = EndsAtALook(look)
    stages = [PlannedStage(0, "v", tuple((subtask,) for subtask in SUBTASKS))]
    run = EngineRun(job=BOUNDED, run=1, first_attempt=0, listener=said)
    with RunProgress(spark, spark, stages, run, on_failure=lambda: cancelled.append("once")) as progress:
        pass
    assert dict(said.states) == dict(zip(SUBTASKS, ("FINISHED", "FAILED"), strict=True))
    assert (SUBTASKS[1], "FINISHED") not in said.states
    assert progress.failure == RunFailed(run=1, failure=BROKEN, attempt=AttemptId(JOB, VertexId("v"), 1, 0))
    assert cancelled == ["once"]
    assert said.lines == [(AttemptId(JOB, VertexId("v"), place, 0), f"from {place}") for place in range(2)], (
        "each once, and of the attempts as the job numbers them"
    )

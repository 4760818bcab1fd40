"""What a bounded job's Spark job does, as its listener sees it: stages, attempts, counters, failures."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Self

import msgspec
from msgspec import structs
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import Accumulator

from unistream.base.closing import Closing
from unistream.base.ids import AttemptId, SubtaskId
from unistream.core.graph import Relay, StagePlan
from unistream.host.spark_status import SparkStage, SparkStatus
from unistream.host.spark_tasks import COMMIT_STAGE, Reported, Reports
from unistream.model.bounded import (
    AttemptsChanged,
    AttemptState,
    BoundedJob,
    RunFailed,
    StageProgress,
    SubtaskSnapshot,
)
from unistream.model.messages import TaskFailure
from unistream.port.engine import EngineRun

POLL_S: Final = 0.25
_STATES: Final = {"SUCCESS": "FINISHED", "FAILED": "FAILED", "KILLED": "CANCELED"}

_LOG: Final = logging.getLogger("unistream.host")
_REPORT: Final = msgspec.msgpack.Decoder(Reported)


class PlannedStage(msgspec.Struct, frozen=True):
    """One stage as the driver has planned it; `subtasks`: those that run at each place."""

    number: int
    name: str
    subtasks: tuple[tuple[SubtaskId, ...], ...]


def planned_stages(job: BoundedJob, plan: StagePlan) -> list[PlannedStage]:
    """All stages before the commit."""
    return [
        PlannedStage(
            number,
            ", ".join(job.graph.vertex(vertex).name for vertex in stage.vertices),
            tuple(() if isinstance(place, Relay) else (place,) for place in stage.places),
        )
        for number, stage in enumerate(plan.stages)
    ]


def planned_commit(job: BoundedJob, plan: StagePlan) -> PlannedStage:
    """One task, in which all committers run."""
    vertices = [job.graph.vertex(vertex) for vertex in plan.committers]
    subtasks = tuple(SubtaskId(v.id, index) for v in vertices for index in range(v.parallelism))
    return PlannedStage(COMMIT_STAGE, ", ".join(v.name for v in vertices), (subtasks,))


class RunProgress(Closing):
    """Follows one run while it is entered.

    Args:
        stages: Of this run, in order.
        on_failure: Called once, when a place has reported a failure.

    Attributes:
        failure: The first one that a place has reported.
    """

    def __init__(
        self,
        status: SparkStatus,
        reports: Accumulator[Reports],
        stages: Sequence[PlannedStage],
        run: EngineRun,
        *,
        on_failure: Callable[[], None],
    ) -> None:
        self._status = status
        self._reports = reports
        self._stages = stages
        self._job = run.job.job
        self._run = run.run
        self._first = run.first_attempt
        self._listener = run.listener
        self._on_failure = on_failure
        self._tasks: dict[tuple[int, int], list[int]] = {}  # Spark's ids of the attempts at each place
        self._states: dict[AttemptId, AttemptState] = {}
        self._known: dict[tuple[int, int], Reported] = {}
        self._shown: list[StageProgress] = []
        self._seen: list[SparkStage] = []
        self._failed: dict[tuple[int, int], int] = {}  # tasks, by stage and attempt of it
        self._errors: set[AttemptId] = set()  # that have reported a failure, which Spark does not know
        self.failure: RunFailed | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"progress-{self._job[:8]}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        """Reports what has happened since the last look."""
        self._over.set()
        self._thread.join()
        with contextlib.suppress(Py4JError, OSError):  # Spark has ended; its last reports are here
            self._poll()
        self._take_reports()

    def name_of(self, stage: int) -> str | None:
        """The operators of a stage, by Spark's number of it; None: not known."""
        with contextlib.suppress(Py4JError, OSError):  # Spark has ended: what was seen before is known
            self._seen = self._status.stages()
        places = [place for place, seen in enumerate(self._seen) if seen.id == stage]
        return self._stages[places[0]].name if places and places[0] < len(self._stages) else None

    @property
    def snapshots(self) -> tuple[SubtaskSnapshot, ...]:
        """The state of a bootstrap's subtasks that have ended."""
        reports = (one.report for one in self._known.values())
        return tuple(report.snapshot for report in reports if report.snapshot is not None)

    def _follow(self) -> None:
        while not self._over.wait(POLL_S):
            try:
                self._poll()
            except (Py4JError, OSError) as error:  # Spark has ended, which the run reports
                _LOG.info("event=spark_progress_unknown job=%s reason=%r", self._job, error)
            except Exception:  # a defect; the last look, in `close`, raises it in the thread of the run
                _LOG.exception("event=spark_progress_failed job=%s", self._job)
                return

    def _poll(self) -> None:
        self._take_reports()
        seen = self._status.stages()
        changed: list[AttemptState] = []
        for planned, stage, before in zip(
            self._stages, seen, [*self._seen, *[None] * len(seen)], strict=False
        ):
            if stage != before:
                changed += self._attempts(planned, stage)
        self._seen = seen
        self._failed |= {(stage.id, stage.attempt): stage.failed for stage in seen}
        if changed:
            self._listener.report(AttemptsChanged(run=self._run, attempts=tuple(changed)))
        shown = [
            self._progress(planned, seen[place] if place < len(seen) else None)
            for place, planned in enumerate(self._stages)
        ]
        if shown != self._shown:
            self._shown = shown
            self._listener.progress(shown)

    # --- what has ended ---------------------------------------------------------------------------

    def _take_reports(self) -> None:
        for key, content in self._reports.value.items():
            if key in self._known:
                continue
            reported = self._known[key] = _REPORT.decode(content)
            report = reported.report
            if report.subtask is not None:
                place = 0 if reported.stage == COMMIT_STAGE else reported.place
                attempt = self._attempt(report.subtask, reported.stage, place, reported.task)
                self._listener.metrics(attempt, report.metrics)
                for commit in report.commits:
                    self._listener.committed(structs.replace(commit, attempt=attempt))
                for lines in report.log:
                    self._listener.logged(structs.replace(lines, attempt=attempt))
                if report.failure is not None:
                    self._failed_at(attempt, report.failure)

    def _failed_at(self, attempt: AttemptId, failure: TaskFailure) -> None:
        self._errors.add(attempt)
        if self.failure is None:
            self.failure = RunFailed(run=self._run, failure=failure, attempt=attempt)
            self._on_failure()

    def _attempt(self, subtask: SubtaskId, stage: int, place: int, task: int) -> AttemptId:
        tasks = self._tasks.setdefault((stage, place), [])
        if task not in tasks:
            tasks.append(task)
        number = self._first + tasks.index(task)
        return AttemptId(self._job, subtask.vertex, subtask.index, number)

    # --- what runs --------------------------------------------------------------------------------

    def _attempts(self, planned: PlannedStage, stage: SparkStage) -> Iterable[AttemptState]:
        tasks = sorted(self._status.tasks(stage), key=lambda task: task.id)
        self._take_reports()  # Spark has that of a task before it shows that the task has ended
        for task in tasks:
            for subtask in planned.subtasks[task.place]:
                attempt = self._attempt(subtask, planned.number, task.place, task.id)
                state = "FAILED" if attempt in self._errors else _STATES.get(task.state, "RUNNING")
                where = f"executor {task.executor} on {task.host}"
                one = AttemptState(attempt=attempt, state=state, executor=where)
                if self._states.get(attempt) != one:
                    self._states[attempt] = one
                    yield one

    def _progress(self, planned: PlannedStage, stage: SparkStage | None) -> StageProgress:
        ended = [one.report.metrics for key, one in self._known.items() if key[0] == planned.number]
        shown = StageProgress(
            name=planned.name,
            tasks=len(planned.subtasks),
            rows_in=sum(metrics.records_in for metrics in ended),
            rows_out=sum(metrics.records_out for metrics in ended),
        )
        if stage is None:
            return shown
        repeated = stage.attempt > 0  # for some places only
        return structs.replace(
            shown,
            running=stage.running,
            finished=len(ended) if repeated else stage.finished,
            failed=sum(failed for (number, _), failed in self._failed.items() if number == stage.id),
            shuffle_bytes=stage.shuffle_bytes,
        )

"""A bounded job as one Spark job: each stage is a stage of Spark, each place a task, and pieces go through
its shuffle as bytes.

    parallelize(places of stage 0) ─ run ─ partitionBy(place of the next) ─ run ─ … ─► staged output
    parallelize([0]) ─ commit of what was staged, in a Spark job of its own

Spark decides where tasks run, stores what they exchange, repeats what was lost and runs slow tasks twice. Of
several attempts at a place the output of one is read: sinks stage under names of the attempt, and only what
the winning attempts have listed is committed. An attempt reads its input in one order (`worker.bounded`), so
one that is repeated makes the same output as the first.

The commit is not part of the first Spark job: a lost shuffle file would repeat writers after a part of their
output was made visible.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import structs
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import Accumulator, Broadcast, SparkContext

from unistream import __version__
from unistream.base.config import TMP_DIRS, Configuration
from unistream.base.errors import ConfigError
from unistream.base.ids import JobId
from unistream.core.graph import StagePlan
from unistream.host.spark_application import SparkApplication, begin_job_group
from unistream.host.spark_errors import failed_task, in_words, unusable_python
from unistream.host.spark_master import attempts_max
from unistream.host.spark_progress import PlannedStage, RunProgress, planned_commit, planned_stages
from unistream.host.spark_status import SparkStatus, stage_name
from unistream.host.spark_tasks import (
    CommitRunner,
    Reports,
    Sent,
    StageRunner,
    StageTasks,
    reports_accumulator,
)
from unistream.model.bounded import (
    BoundedJob,
    CommittersStored,
    EngineReport,
    RunFailed,
    StagedCommitted,
    StagesRan,
)
from unistream.model.messages import TaskFailure
from unistream.model.stored_rows import StoredRows
from unistream.net.folder import PrivateFolder
from unistream.port.engine import EngineRun

CANCEL_S: Final = 15.0  # Spark kills the Python worker of a cancelled task after a pause of its own
CANCEL_REPEAT_S: Final = 0.5  # cancelling a group has no effect before Spark knows its job

_LOG: Final = logging.getLogger("unistream.host")


class SparkEngine:
    """`port.engine.BatchEngine` in the Spark context of a host.

    Args:
        application: Owned by the host. Its master says how many tasks run at a time.
    """

    def __init__(self, application: SparkApplication) -> None:
        self._application = application
        self._slots: PrivateFolder | None = None
        self._runs: dict[JobId, _SparkJob] = {}
        self._lock = threading.Lock()
        self._closed = False

    def run_stages(self, run: EngineRun) -> None:
        plan = StagePlan(run.job.graph, run.job.part)
        stages = planned_stages(run.job, plan)

        def perform(context: SparkContext, reports: Accumulator[Reports]) -> EngineReport:
            staged = _run_stages(context, run.job, stages, reports, self._tasks(context, run))
            if run.job.part:
                return StagesRan(run=run.run, stored=_stored(staged))
            return StagesRan(run=run.run, staged=tuple(staged))

        self._start(_SparkJob(self, run, "stages", stages, perform))

    def store_committers(self, run: EngineRun, staged: Sequence[bytes]) -> None:
        stored = CommittersStored(run=run.run, snapshots=())
        self._run_committers(run, staged, "state of committers", stored, stores=True)

    def commit(self, run: EngineRun, staged: Sequence[bytes]) -> None:
        self._run_committers(run, staged, "commit", StagedCommitted(run=run.run))

    def _run_committers(
        self, run: EngineRun, staged: Sequence[bytes], what: str, done: EngineReport, *, stores: bool = False
    ) -> None:
        stage = planned_commit(run.job, StagePlan(run.job.graph))

        def perform(context: SparkContext, reports: Accumulator[Reports]) -> EngineReport:
            tasks = self._tasks(context, run)
            _commit(context, run.job, stage, reports, tasks, staged=staged, stores=stores)
            return done

        self._start(_SparkJob(self, run, what, [stage], perform))

    def cancel(self, job: JobId) -> None:
        with self._lock:
            run = self._runs.get(job)
        if run is not None:
            run.cancel("it was cancelled")

    def close(self) -> None:
        with self._lock:
            self._closed = True
            runs = list(self._runs.values())
        for run in runs:
            run.cancel("its cluster was shut down")
        for run in runs:
            run.join(CANCEL_S)
        if self._slots is not None:
            self._slots.close()

    def _start(self, run: _SparkJob) -> None:
        with self._lock:
            self._runs[run.job] = run
            if self._closed:
                run.cancel("its cluster was shut down")
        run.start()

    def ended(self, run: _SparkJob) -> None:
        """Called by a run, at its end."""
        with self._lock:
            if self._runs.get(run.job) is run:
                del self._runs[run.job]

    @property
    def application(self) -> SparkApplication:
        return self._application

    def _tasks(self, context: SparkContext, run: EngineRun) -> StageTasks:
        """What the tasks of the run have in common."""
        cores = self._application.cores
        return StageTasks(
            run=run.run,
            attempts_max=attempts_max(context),
            tmp_dirs=Configuration(run.job.graph.config).find(TMP_DIRS),
            slots_folder=self._slots_folder() if cores else "",
            slots=cores or 0,
            version="" if cores else __version__,
        )

    def _slots_folder(self) -> str:
        """The folder of slots, made for the first run in local mode: a program's own Spark may end, and
        another master follow."""
        with self._lock:
            if self._slots is None:
                self._slots = PrivateFolder(Path(tempfile.gettempdir()), "unistream-cores-")
            return str(self._slots.path)


class _SparkJob:
    """One Spark job and the thread that waits for it. `perform` runs it, and returns when it has ended."""

    def __init__(
        self,
        engine: SparkEngine,
        run: EngineRun,
        what: str,
        stages: Sequence[PlannedStage],
        perform: Callable[[SparkContext, Accumulator[Reports]], EngineReport],
    ) -> None:
        self.job = run.job.job
        self._engine = engine
        self._run = run
        self._what = what
        self._stages = stages
        self._perform = perform
        self._group = f"unistream-{self.job}-{run.run}-{run.first_attempt}-{what}"
        self._context: SparkContext | None = None
        self._cancelled = ""  # why
        self._ended = threading.Event()
        # The job group is a property of the thread's own twin in the JVM.
        self._thread = threading.Thread(target=self._live, name=f"spark-{self.job[:8]}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def cancel(self, reason: str) -> None:
        """Returns at once."""
        self._cancelled = self._cancelled or reason
        threading.Thread(target=self._cancel, name=f"cancel-{self.job[:8]}", daemon=True).start()

    def join(self, timeout_s: float) -> None:
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        if self._thread.is_alive():
            _LOG.error("event=spark_job_not_ended job=%s", self.job)

    def _cancel(self) -> None:
        for _ in range(int(CANCEL_S / CANCEL_REPEAT_S)):
            if self._context is not None:
                with contextlib.suppress(Py4JError, OSError, AttributeError):  # Spark is gone: so is the job
                    self._context.cancelJobGroup(self._group)
            if self._ended.wait(CANCEL_REPEAT_S):
                return
        _LOG.error("event=spark_cancel_timeout job=%s", self.job)

    def _live(self) -> None:
        try:
            report = self._report()
        except Exception as error:
            _LOG.exception("event=spark_engine_defect job=%s", self.job)
            report = self._failed(TaskFailure(kind=type(error).__name__, message=str(error)))
        self._ended.set()
        self._engine.ended(self)
        self._run.listener.report(report)

    def _report(self) -> EngineReport:
        try:
            context = self._engine.application.living().context
        except ConfigError as error:
            return self._failed(TaskFailure(kind="ConfigError", message=str(error), recoverable=False))
        self._context = context
        self._run.listener.page(context.uiWebUrl)
        begin_job_group(context, self._group, f"{self._run.job.graph.name}: {self._what}")
        reports = reports_accumulator(context)
        progress = RunProgress(
            SparkStatus(context, self._group),
            reports,
            self._stages,
            self._run,
            on_failure=lambda: self.cancel("one of its tasks has failed"),
        )
        with progress:
            try:
                done = None if self._cancelled else self._perform(context, reports)
            except Exception as error:
                done = self._failed(self._in_words(context, error, progress.name_of))
        reports.value = {}  # pyspark keeps accumulators for ever
        if progress.failure is not None:
            return progress.failure
        if done is None or self._cancelled:
            return self._failed(TaskFailure(kind="JobCancelled", message=self._cancelled, recoverable=False))
        if isinstance(done, StagesRan | CommittersStored):
            return structs.replace(done, snapshots=progress.snapshots)
        return done

    def _failed(self, failure: TaskFailure) -> RunFailed:
        return RunFailed(run=self._run.run, failure=failure)

    def _in_words(
        self, context: SparkContext, error: Exception, name_of: Callable[[int], str | None]
    ) -> TaskFailure:
        """`name_of`: the operators of a stage, by Spark's number of it."""
        unusable = unusable_python(error, str(context.pythonExec))
        if unusable is not None:
            return TaskFailure(kind="ConfigError", message=unusable, recoverable=False)
        where, task = "", failed_task(error)
        if task is not None:
            stage = name_of(task.stage)
            place = f"on {task.host}, executor {task.executor}"
            where = f" in {stage or self._what} (attempt {task.attempts}, {place})"
        message = f"its Spark job failed{where}: {in_words(error)}"
        return TaskFailure(kind="SparkJobFailed", message=message, traceback=str(error))


def _run_stages(
    context: SparkContext,
    job: BoundedJob,
    stages: Sequence[PlannedStage],
    reports: Accumulator[Reports],
    tasks: StageTasks,
) -> list[bytes]:
    """What the last stage has staged."""
    with _sent(context, msgspec.msgpack.encode(job)) as sent:
        places = len(stages[0].subtasks)
        rows: Any = context.parallelize(range(places), places)
        for planned, following in zip(stages, [*stages[1:], None], strict=True):
            with stage_name(context, f"{job.graph.name}: {planned.name}"):
                rows = rows.mapPartitionsWithIndex(StageRunner(sent, reports, tasks, planned.number))
                if following is not None:
                    rows = rows.partitionBy(len(following.subtasks), _place)
                    continue
                staged: list[bytes] = context.runJob(rows, _contents)
                return staged
        raise AssertionError("a job has a stage")


def _stored(staged: Sequence[bytes]) -> tuple[StoredRows, ...]:
    from unistream.worker.bounded import FAILED, Piece, stored_rows

    pieces = (msgspec.msgpack.decode(piece, type=Piece) for piece in staged)
    return tuple(stored_rows(piece) for piece in pieces if piece.edge != FAILED)  # its failure is reported


def _commit(
    context: SparkContext,
    job: BoundedJob,
    stage: PlannedStage,
    reports: Accumulator[Reports],
    tasks: StageTasks,
    *,
    staged: Sequence[bytes],
    stores: bool,
) -> None:
    with (
        _sent(context, msgspec.msgpack.encode(job)) as sent,
        _sent(context, list(staged)) as listed,
        stage_name(context, f"{job.graph.name}: {stage.name}"),
    ):
        runner = CommitRunner(sent, listed, reports, tasks, stores=stores)
        context.runJob(context.parallelize([0], 1).mapPartitionsWithIndex(runner), list)


@contextmanager
def _sent(context: SparkContext, value: Any) -> Iterator[Broadcast[Any]]:
    sent = context.broadcast(value)
    try:
        yield sent
    finally:
        with contextlib.suppress(Py4JError, OSError, AttributeError):  # Spark is gone, and so is this
            sent.destroy()


def _place(place: int) -> int:
    return place


def _contents(rows: Iterator[Sent]) -> Iterator[bytes]:
    return (content for _, content in rows)

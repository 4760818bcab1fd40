"""The runs of one job on an engine: commands of the machine go there, what happens comes back as events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from msgspec import structs

from unistream.base.errors import Transient
from unistream.base.ids import AttemptId
from unistream.core import contract
from unistream.core.graph import offloaded_vertices
from unistream.master.job.job_setup import JobSetup
from unistream.master.job.journal import JobJournal
from unistream.master.loop import InOrder, WorkPool
from unistream.model.bounded import BoundedJob, EngineReport, RunFailed, StageProgress
from unistream.model.messages import CommitReported, LogReported, TaskFailure, TaskMetrics
from unistream.model.stored_rows import StoredRows
from unistream.port.engine import BatchEngine, EngineRun

logger = logging.getLogger(__name__)

RunOrder = contract.RunStages | contract.StoreCommitters | contract.CommitStaged
EngineOrder = RunOrder | contract.CancelRun | contract.KeepStored


class EngineRuns:
    """Implements `port.engine.EngineListener`. `create_engine` may take seconds: Spark starts.
    `before_commit` is called with what the engine is to commit, which it does not if that raises;
    `before_run` in the same way with the number of the first attempts of a run."""

    def __init__(
        self,
        setup: JobSetup,
        create_engine: Callable[[], BatchEngine],
        get_artifact: Callable[[str], bytes],
        *,
        pool: WorkPool,
        journal: JobJournal,
        post: Callable[[contract.Event], None],
        before_commit: Callable[[Sequence[bytes]], None] = lambda _staged: None,
        before_run: Callable[[int], None] = lambda _number: None,
    ) -> None:
        self._before_commit = before_commit
        self._before_run = before_run
        self._setup = setup
        self._create_engine = create_engine
        self._get_artifact = get_artifact
        self._in_order = InOrder(pool)  # a run is started before it is cancelled
        self._journal = journal
        self._post = post
        self._stages: tuple[StageProgress, ...] = ()  # of the last run; the commit comes behind them
        self._commits = False
        self._first_attempt: int | None = None  # of a bounded part of a stream
        self._folders: list[str] | None = None  # for what leaves it; None: not known

    def perform(self, command: EngineOrder) -> None:
        """Returns at once."""
        self._in_order.submit(self._perform, command)

    def _perform(self, command: EngineOrder) -> None:
        match command:
            case contract.CancelRun():
                self._create_engine().cancel(self._setup.job)
            case contract.KeepStored(rows):
                self._keep(rows)
            case _:
                self._try_to_start(command)

    def _keep(self, rows: Sequence[StoredRows]) -> None:
        try:
            folders = self._known_folders()
            self._setup.storage.keep_stored(folders, rows)
            needed = {one.folder for one in rows}
            self._folders = [folder for folder in folders if folder in needed]
        except Exception:  # they are removed when the job has ended
            logger.exception("event=stored_rows_not_removed job=%s", self._setup.job)

    def _try_to_start(self, command: RunOrder) -> None:
        try:
            self._start(command)
        except Exception as error:
            logger.exception("event=engine_not_started job=%s", self._setup.job)
            failure = TaskFailure(
                kind=type(error).__name__, message=str(error), recoverable=isinstance(error, Transient)
            )
            self._post(RunFailed(run=command.run, failure=failure))

    def _start(self, command: RunOrder) -> None:
        setup = self._setup
        self._before_run(command.first_attempt)
        part = command.graph if isinstance(command, contract.RunStages) else None
        self._first_attempt = None if part is None else command.first_attempt
        run = EngineRun(
            job=BoundedJob(
                job=setup.job,
                lineage=setup.lineage,
                graph=setup.graph if part is None else part,
                artifact=self._get_artifact(setup.start.artifact),
                sha256=setup.artifact,
                splits=dict(command.splits),
                memory_bytes=setup.memory_bytes,
                part=() if part is None else offloaded_vertices(part),
                stored_folder="" if part is None else self._new_folder(),
            ),
            run=command.run,
            first_attempt=command.first_attempt,
            listener=self,
        )
        engine = self._create_engine()
        self._commits = not isinstance(command, contract.RunStages)
        match command:
            case contract.RunStages():
                engine.run_stages(run)
            case contract.StoreCommitters():
                engine.store_committers(run, command.staged)
            case contract.CommitStaged():
                self._before_commit(command.staged)
                engine.commit(run, command.staged)

    def _new_folder(self) -> str:
        folders = self._known_folders()
        folders.append(self._setup.storage.stored_folder(self._setup.job))
        return folders[-1]

    def _known_folders(self) -> list[str]:
        """The folders of the engine's rows that are known, with those that an earlier leader has left."""
        if self._folders is None:
            self._folders = list(self._setup.storage.stored_folders(self._setup.job))
        return self._folders

    def report(self, report: EngineReport) -> None:
        self._post(report)

    def metrics(self, attempt: AttemptId, metrics: TaskMetrics) -> None:
        self._journal.metrics(self._known(attempt), metrics, final=True)

    def logged(self, report: LogReported) -> None:
        self._journal.logged(structs.replace(report, attempt=self._known(report.attempt)))

    def _known(self, attempt: AttemptId) -> AttemptId:
        """The attempt's id as the job numbers it: a subtask of a stream has one attempt in a run."""
        if self._first_attempt is None:
            return attempt
        return structs.replace(attempt, attempt=self._first_attempt)

    def committed(self, report: CommitReported) -> None:
        self._journal.commit(report)

    def page(self, url: str | None) -> None:
        self._journal.engine_shown_at(url)

    def progress(self, stages: Sequence[StageProgress]) -> None:
        if not self._commits:
            self._stages = tuple(stages)
        self._journal.progress((*self._stages, *stages) if self._commits else stages)

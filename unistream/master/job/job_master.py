"""The shell around one job's machine: one thread, one mailbox; the machine decides, the shell performs.

    events: workers' reports, slots, losses, timers, answers of the storage   ──►  machine.handle
    commands, in order: sends (one ordered sender per worker), slots, timers, storage and source
    discovery (in a small pool), facts for the catalogue                      ◄──

Queued events are decided one after the other, then the machine is validated, then its commands are
performed: many reports cost one pass over all tasks, and the messages for one worker are sent together.

A failed command comes back as an event. An exception inside the machine is a bug in unistream: the job ends
as FAILED and shows its last events.

End of a job: the result is recorded, then waiting requests are answered, then snapshots that nothing needs
are removed, then the dispatcher is notified (a finished job must never be started again).
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from unistream.base.crash_points import crash_point
from unistream.base.errors import Fenced
from unistream.base.ids import AttemptId, JobId, TaskManagerId, VertexId
from unistream.base.secrets import Secret
from unistream.core import contract
from unistream.core.contract import JobView
from unistream.core.job import abandonment
from unistream.core.resource import SlotsReturned, SlotsWanted
from unistream.master.job.durable_job import LEADERSHIP_LOST, DurableJob, left_behind
from unistream.master.job.durable_requests import DurableRequests
from unistream.master.job.engine_runs import EngineOrder, EngineRuns
from unistream.master.job.job_io import JobIo
from unistream.master.job.job_setup import JobSetup
from unistream.master.job.journal import JobJournal
from unistream.master.job.live import LiveCluster, live_info, live_summary, state_of, totals_so_far, widths
from unistream.master.job.open_requests import OpenRequests
from unistream.master.job.pictures import Picture, Pictures
from unistream.master.job.worker_messages import WorkerMessages
from unistream.master.loop import Loop
from unistream.master.service import ClusterServices, MasterPorts
from unistream.master.shown import archived, defect_failure
from unistream.master.store import RescaleAsked, TriggeredOperation, UntilWritten
from unistream.model.checkpoint_figures import CheckpointsInfo
from unistream.model.job_info import TERMINAL_STATES, JobInfo, JobSummary, TaskManagerInfo
from unistream.model.job_log_line import LINES_KEPT_MAX
from unistream.model.messages import TaskFailure
from unistream.model.stored_job import Sealed, StoredResult
from unistream.port.engine import BatchEngine

EVENTS_MAX: Final = 256  # decided together; after so many a timer has its turn
STORY_EVENTS: Final = 20  # how far back the story of a defect goes
STORY_EVENT_CHARS: Final = 300
WAIT_MS: Final = 60_000  # bounds one wait of the loop; nothing depends on it
RESULT_TIMEOUT_S: Final = 10.0  # longest wait for the catalogue to take a result
CLEANUP_TIMEOUT_S: Final = 30.0  # longest wait for superseded snapshots to be removed

logger = logging.getLogger(__name__)


class JobMaster:
    """Runs one job to its end. All public methods may be called from any thread."""

    def __init__(
        self,
        setup: JobSetup,
        services: ClusterServices,
        ports: MasterPorts,
        *,
        request_slots: Callable[[SlotsWanted | SlotsReturned], None],
        on_ended: Callable[[JobId], None],
        finish_later: Callable[[StoredResult], None],
        until_written: UntilWritten,
        create_engine: Callable[[], BatchEngine],
    ) -> None:
        """`on_ended` is called last, on the job's thread; `finish_later`: see `DurableJob`."""
        self.setup = setup
        self.journal = JobJournal(
            setup.job,
            setup.graph,
            ports.catalogue,
            services.clock,
            restored=setup.restored,
            own=setup.own_restore,
            submitted_ms=setup.start.submitted_ms,
        )
        self._machine = setup.machine
        self._services = services
        self._ports = ports
        self._request_slots = request_slots
        self._on_ended = on_ended
        self._loop: Loop[contract.Event | _Abandon | Picture, contract.Timer] = ports.create_loop(
            f"job-{setup.job[:8]}"
        )
        self._io = JobIo(
            setup,
            services,
            ports.jobs.snapshots(setup.job),
            ports.io,
            self.post,
            totals=lambda: totals_so_far(self._machine.view(), self.journal),
        )
        self._durable = DurableJob(setup, ports.jobs, ports.io, finish_later)
        self._engine = EngineRuns(
            setup,
            create_engine,
            services.artifacts.get,
            pool=ports.io,
            journal=self.journal,
            post=self.post,
            before_commit=self._committing_staged,
            before_run=self._attempting,
        )
        self._restarts = setup.start.used.restarts_then  # as last recorded
        exchange = Secret(services.exchange_token(setup.job))
        self._outgoing = WorkerMessages(
            setup.job, ports.senders, self.post, self._committing, self._attempting, exchange=exchange
        )
        self._story = deque[contract.Event](maxlen=STORY_EVENTS)
        self._requests = OpenRequests()
        self._durable_requests = DurableRequests(
            setup,
            ports.jobs,
            until_written,
            self._requests,
            post=self._loop.post,
            keep_parallelism=self._keep_parallelism,
        )
        self._reached: Mapping[VertexId, int] = {}  # the parallelism, when a change was answered last
        self._pictures = Pictures(self._machine, services.clock, self._loop)
        self._end: contract.JobEnded | None = None
        self._ended = threading.Event()
        self._ended_ms: int | None = None

    def start(self) -> None:
        self._loop.start(lambda: self._guarded(lambda: self._feed([contract.Started()])), self._step)

    # --- from other threads -----------------------------------------------------------------------

    def post(self, event: contract.Event) -> None:
        """Queues `event`; never blocks. Dropped after the job has ended."""
        if not self._ended.is_set():
            self._loop.post(event)

    def worker_of(self, attempt: AttemptId) -> TaskManagerId | None:
        """The worker that this attempt was given to; None: it was given to none, or a later one was."""
        return self._outgoing.worker_of(attempt)

    @property
    def workers(self) -> Collection[TaskManagerId]:
        """The workers that were given tasks of this job."""
        return self._outgoing.workers

    def request_snapshot(self, wanted: contract.SnapshotRequest, trigger: str | None = None) -> Future[str]:
        """See `DurableRequests.snapshot`."""
        return self._durable_requests.snapshot(wanted, trigger)

    def operation(self, trigger: str) -> TriggeredOperation | None:
        """See `DurableRequests.operation`."""
        return self._durable_requests.operation(trigger)

    def rescale(self, wanted: RescaleAsked, trigger: str) -> Future[str]:
        """See `DurableRequests.rescale`."""
        return self._durable_requests.rescale(wanted, trigger)

    def cancel(self) -> None:
        """Raises Fenced, Unreachable, OutcomeUnknown: it could not be made durable."""
        self._durable_requests.cancelled()
        self.post(contract.CancelRequested())

    def suspend(self, why: contract.SuspendRequested) -> None:
        """Ends the job's tasks and keeps its snapshots, since the cluster is shut down."""
        self.post(why)

    def wait(self, timeout_s: float | None) -> bool:
        """True once the job has ended and its result is recorded."""
        return self._ended.wait(timeout_s)

    def abandon(self, why: contract.SuspendRequested, timeout_s: float) -> bool:
        """Suspends the job without waiting for its tasks; the last resort of a shutdown."""
        self._loop.post(_Abandon(why))
        return self._ended.wait(timeout_s)

    def join(self, timeout_s: float) -> bool:
        """Waits until its thread has ended, clean-up included."""
        return self._loop.join(timeout_s)

    @property
    def state(self) -> str:
        """The job's state as last seen; exact once the job has ended."""
        return state_of(self._pictures.view, self._ended_as)

    @property
    def failure(self) -> TaskFailure | None:
        """The failure of a job that has ended as FAILED or SUSPENDED."""
        return None if self._end is None else self._end.failure

    def info(self, workers: Iterable[TaskManagerInfo]) -> JobInfo:
        """The job as it is now; `workers`: all workers of the cluster."""
        return self._info(self.view(), self._ended_as, workers)

    @property
    def _ended_as(self) -> tuple[contract.JobEnded, int] | None:
        """How it ended and when; None: its result is not recorded yet."""
        return None if self._end is None or self._ended_ms is None else (self._end, self._ended_ms)

    def _info(
        self, view: JobView, ended: tuple[contract.JobEnded, int] | None, workers: Iterable[TaskManagerInfo]
    ) -> JobInfo:
        clock = self._services.clock
        where = LiveCluster(
            id=self._ports.catalogue.cluster,
            target=self._services.target,
            workers=workers,
            since_ms=clock.wall_ms() - clock.monotonic_ms(),
        )
        return live_info(self.setup, self.journal, view, ended, where)

    def summary(self) -> JobSummary:
        """The job's line in a list."""
        return self._summary(self.view(), self._ended_as)

    def shown(self, workers: Iterable[TaskManagerInfo]) -> tuple[JobSummary, JobInfo]:
        """The job's line and its `JobInfo`, of one moment: the job is asked once, and by many lists at the
        same time it costs half."""
        view, ended = self.view(), self._ended_as
        return self._summary(view, ended), self._info(view, ended, workers)

    def _summary(self, view: JobView, ended: tuple[contract.JobEnded, int] | None) -> JobSummary:
        submitted_ms, cluster = self.journal.submitted_ms, self._ports.catalogue.cluster
        return live_summary(self.setup, submitted_ms, view, ended, cluster)

    def checkpoints(self) -> CheckpointsInfo:
        """The statistics of its snapshots; kept after its end."""
        return self._pictures.new_checkpoints() if self._end is None else self._pictures.checkpoints

    def view(self) -> JobView:
        """The machine's view after all events posted before; after its end, the last one."""
        return self._pictures.new_view() if self._end is None else self._pictures.view

    # --- the loop ---------------------------------------------------------------------------------

    def _step(self) -> bool:
        return self._guarded(self._take)

    def _guarded(self, decide: Callable[[], Sequence[contract.Command]]) -> bool:
        """False: the job has ended and its end is handled."""
        try:
            final = decide()
        except Exception as error:
            self._ports.on_defect(error)
            logger.exception("event=job_master_defect job=%s", self.setup.job)
            story = [repr(event)[:STORY_EVENT_CHARS] for event in self._story]
            final = self._give_up(defect_failure(error, story))
        if self._end is None:
            return True
        self._conclude(final)
        self._pictures.keep_last()
        return False

    def _take(self) -> Sequence[contract.Command]:
        """Decides on the events that are queued. Returns as `_feed`."""
        event, timer = self._loop.take(WAIT_MS)
        over = self._ports.leadership.await_leading()
        if over is not None:
            if isinstance(event, Picture):
                event.taken.set()  # its caller gets the last picture
            return self._feed([contract.LeadershipLost(reason=over)])
        if timer is not None:
            return self._feed([contract.TimerFired(timer)])
        gathered: list[contract.Event] = []
        while event is not None and not isinstance(event, Picture | _Abandon):
            gathered.append(event)
            event = self._loop.take_waiting() if len(gathered) < EVENTS_MAX else None
        final = self._feed(gathered) if gathered else ()
        if isinstance(event, Picture):
            event.take()
            event.taken.set()
        elif isinstance(event, _Abandon) and self._end is None:
            latest = self.journal.snapshots.newest
            why = abandonment(self.setup.job, self.setup.graph.name, event.why, latest)
            return self._give_up(why, "SUSPENDED")
        return final

    def _feed(self, events: Iterable[contract.Event]) -> Sequence[contract.Command]:
        """Performs the machine's commands for `events`. Returns those that wait for the job's result."""
        self._pictures.outdate()
        commands: list[contract.Command] = []
        for event in events:
            self._story.append(event)
            if isinstance(event, contract.LeadershipLost):
                self._end = left_behind(event)
            if isinstance(event, contract.SlotsGranted):
                self._outgoing.granted(event.leases)
            commands += self._machine.handle(event, self._services.clock.monotonic_ms())
        self._machine.validate()
        self._end = next((c for c in commands if isinstance(c, contract.JobEnded)), self._end)
        final: list[contract.Command] = []
        for command in commands:
            if self._end is not None and isinstance(
                command, contract.AnswerRequest | contract.DiscardSnapshot
            ):
                final.append(command)
            else:
                self._perform(command)
        self._outgoing.flush()
        if self._end is not None:
            self._pictures.take()
        return final

    def _perform(self, command: contract.Command) -> None:
        job = self.setup.job
        match command:
            case contract.Send():
                self._outgoing.add(command)
            case contract.RequestSlots(requests=requests):
                self._request_slots(SlotsWanted(job=job, requests=requests))
            case contract.ReleaseSlots(requests=keys):
                self._outgoing.flush()  # cancellations reach a worker before it is released
                self._request_slots(SlotsReturned(job=job, requests=keys))
            case contract.SetTimer(timer=timer, delay_ms=delay_ms):
                self._loop.set_timer(timer, delay_ms)
            case contract.CancelTimer(timer=timer):
                self._loop.cancel_timer(timer)
            case contract.DiscoverSplits() | contract.PrepareDirectory() | contract.WriteManifest():
                self._io.start(command)
            case contract.DiscardSnapshot():
                self._io.discard(command)
            case _ if isinstance(command, EngineOrder):
                self._engine.perform(command)
            case contract.AnswerRequest():
                self._answer(command)
            case _:
                self._record(command)

    def _answer(self, command: contract.AnswerRequest) -> None:
        if command.path == "":  # another parallelism: what the machine has now, not an older picture
            self._reached = widths(self._machine.view())
        self._requests.answer(command)

    def _record(
        self,
        command: contract.RecordJobState
        | contract.RecordAttempt
        | contract.RecordException
        | contract.RecordCheckpoint
        | contract.RecordGraph
        | contract.JobEnded,
    ) -> None:
        match command:
            case contract.RecordJobState(state=state, restarts=restarts):
                self._restarts = restarts
                logger.info("event=job_state job=%s state=%s", self.setup.job, state)
                if state not in TERMINAL_STATES:  # the result is recorded once, by `_conclude`
                    self.journal.job_state(command)
                if state == "RUNNING":
                    self._durable_requests.job_runs()
            case contract.RecordAttempt():
                if self.setup.has_engine:  # which repeats tasks by itself
                    self._durable.attempted(command.attempt.attempt, self._restarts)
                self.journal.attempt(command)
            case contract.RecordException():
                self.journal.exception(command, self._outgoing.address(command.task_manager))
            case contract.RecordCheckpoint(record):
                self.journal.checkpoint(record)
            case contract.RecordGraph(graph):
                widths = ", ".join(f"{vertex.name!r}={vertex.parallelism}" for vertex in graph.vertices)
                logger.info("event=job_rescaled job=%s parallelism=[%s]", self.setup.job, widths)
                self.journal.rescaled(graph)
            case contract.JobEnded():
                pass  # kept by `_feed`, acted on by `_conclude`

    def _committing(self) -> None:
        self._durable.committing(self._machine.sealed())

    def _committing_staged(self, staged: Sequence[bytes]) -> None:
        self._durable.committing(Sealed(lineage=self.setup.lineage, staged=tuple(staged)))

    def _keep_parallelism(self) -> None:
        """The newest, so that one that is tried again later does not take the place of a newer one."""
        self._durable.keep_parallelism(self._reached)

    def _attempting(self, number: int) -> None:
        self._durable.attempting(number, self._restarts)

    # --- the end ----------------------------------------------------------------------------------

    def _give_up(self, failure: TaskFailure, state: str = "FAILED") -> Sequence[contract.Command]:
        """The machine cannot continue: cancels its tasks and returns all slots. Nothing is deleted."""
        with contextlib.suppress(Exception):  # the machine may be what has failed
            self._pictures.take()
        self._outgoing.cancel(self._pictures.view.attempts)
        if self.setup.has_engine:
            self._engine.perform(contract.CancelRun())
        self._request_slots(SlotsReturned(job=self.setup.job))
        self.journal.failure(failure)
        self._end = contract.JobEnded(state=state, failure=failure)
        return ()

    def _conclude(self, final: Sequence[contract.Command]) -> None:
        """Result first, then answers, then clean-up."""
        assert self._end is not None
        crash_point("result.before_record")
        ended_ms = self._services.clock.wall_ms()
        why = f": {self._end.failure.message}" if self._end.failure else ""
        reason = f"the job ended as {self._end.state} before it was done{why}"
        answers = {c.request: c for c in final if isinstance(c, contract.AnswerRequest)}
        restarts, snapshots = self._pictures.view.restarts, self.journal.snapshots
        concluded = self._durable_requests.concluded(
            answers,
            reason=reason,
            stopped_with=snapshots.newest_savepoint if self._concludes else None,
            resumes_from=snapshots.resumable,
        )
        try:
            result = self._durable.ended(
                self._end,
                (*self._io.left, *final),
                submitted_ms=self.journal.submitted_ms,
                ended_ms=ended_ms,
                restarts=restarts,
                savepoint=snapshots.newest_savepoint,
                resumes_from=snapshots.resumable,
                operations=concluded,
            )
        except Fenced as error:
            logger.warning("event=result_fenced job=%s state=%s", self.setup.job, self._end.state)
            self._end, final, result = left_behind(contract.LeadershipLost(reason=str(error))), (), None
            answers = {}
        self._archive(ended_ms)
        if not self.journal.ended(self._end.state, self._pictures.view.restarts, ended_ms).wait(
            RESULT_TIMEOUT_S
        ):
            logger.error("event=result_not_recorded job=%s state=%s", self.setup.job, self._end.state)
        crash_point("result.recorded")
        self._ended_ms = ended_ms
        self._durable_requests.job_ended(self._end.state, concluded)
        self._requests.close(f"job {self.setup.job} has already ended: {self._end.state}")
        for answer in answers.values():
            self._requests.answer(answer)
        self._requests.reject_all(reason)
        self._durable_requests.reject(reason)
        self._ended.set()
        if result is not None:
            self._clean_up(final, result)
        logger.info("event=job_ended job=%s state=%s", self.setup.job, self._end.state)
        self._on_ended(self.setup.job)

    def _clean_up(self, final: Sequence[contract.Command], result: StoredResult) -> None:
        discards = [self._io.discard(c) for c in final if isinstance(c, contract.DiscardSnapshot)]
        self._ports.io.wait([*discards, *self._io.preparing], CLEANUP_TIMEOUT_S)
        self._ports.io.wait([self._io.forget()], CLEANUP_TIMEOUT_S)
        if self._io.is_clean:
            self._durable.cleaned(result)  # else the next leader removes the rest

    @property
    def _concludes(self) -> bool:
        """The job has ended with the savepoint of a stop under an earlier leader."""
        own = self.setup.own_restore
        return own is not None and own.concludes and self._end is not None and self._end.state == "FINISHED"

    def _archive(self, ended_ms: int) -> None:
        """What the job's pages show from now on is kept with its history. Never fails the end of a job."""
        assert self._end is not None
        if self._end.failure is not None and self._end.failure.kind == LEADERSHIP_LOST:
            return  # another master has the job, and its history
        try:
            info = self._info(self._pictures.view, (self._end, ended_ms), ())
            log = self.journal.log.after(0, LINES_KEPT_MAX)
            self._ports.catalogue.archive(archived(info, self._pictures.checkpoints, log))
        except Exception as error:
            self._ports.on_defect(error)
            logger.exception("event=job_not_archived job=%s", self.setup.job)


@dataclass(frozen=True, slots=True)
class _Abandon:
    why: contract.SuspendRequested

"""The shell around one job's machine: one thread, one mailbox; the machine decides, the shell performs.

    events: workers' reports, slots, losses, timers, answers of the storage   ──►  machine.handle
    commands, in order: sends (one ordered sender per worker), slots, timers, storage and source
    discovery (in a small pool), facts for the catalogue                      ◄──

Queued events are decided one after the other, then the machine is validated, then its commands are
performed: many reports cost one pass over all tasks, and the messages for one worker are sent together.

A failed command comes back as an event. An exception inside the machine is a bug in unistream: the job ends
as FAILED and shows its last events.

At the end of a job `conclusion` records, answers and removes; then the dispatcher is notified.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from unistream.base.ids import AttemptId, JobId, TaskManagerId
from unistream.base.secrets import Secret
from unistream.core import contract
from unistream.core.job import abandonment
from unistream.core.resource import SlotsReturned, SlotsWanted
from unistream.master.job.conclusion import JobConclusion
from unistream.master.job.durable_job import DurableJob, left_behind
from unistream.master.job.durable_requests import DurableRequests
from unistream.master.job.engine_runs import EngineOrder, EngineRuns
from unistream.master.job.job_io import JobIo
from unistream.master.job.job_setup import JobSetup
from unistream.master.job.journal import JobJournal
from unistream.master.job.live import JobEnding, LiveJob, totals_so_far, widths
from unistream.master.job.pictures import Picture, Pictures
from unistream.master.job.worker_messages import WorkerMessages
from unistream.master.loop import Loop
from unistream.master.service import ClusterServices, MasterPorts
from unistream.master.shown import defect_failure
from unistream.master.store import RescaleAsked, TriggeredOperation, UntilWritten
from unistream.model.job_info import TERMINAL_STATES
from unistream.model.messages import TaskFailure
from unistream.model.stored_job import StoredResult
from unistream.port.engine import BatchEngine

EVENTS_MAX: Final = 256  # decided together; after so many a timer has its turn
STORY_EVENTS: Final = 20  # how far back the story of a defect goes
STORY_EVENT_CHARS: Final = 300
WAIT_MS: Final = 60_000  # bounds one wait of the loop; nothing depends on it

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
        self.journal = _journal_of(setup, services, ports)
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
            before_commit=self._durable.committing_staged,
            before_run=self._durable.attempting,
        )
        exchange = Secret(services.exchange_token(setup.job))
        self._outgoing = WorkerMessages(
            setup.job, ports.senders, self.post, self._committing, self._durable.attempting, exchange=exchange
        )
        self._story = deque[contract.Event](maxlen=STORY_EVENTS)
        self._requests = DurableRequests(
            setup,
            ports.jobs,
            until_written,
            post=self._loop.post,
            keep_parallelism=self._durable.keep_parallelism,
        )
        self._pictures = Pictures(self._machine, services.clock, self._loop)
        self._ending = JobEnding()
        self.live = LiveJob(
            setup,
            self.journal,
            self._pictures,
            self._ending,
            services=services,
            cluster=ports.catalogue.cluster,
        )
        self._conclusion = self._create_conclusion()

    def _create_conclusion(self) -> JobConclusion:
        return JobConclusion(
            self.setup,
            self._ports,
            self._services.clock,
            journal=self.journal,
            live=self.live,
            durable=self._durable,
            requests=self._requests,
            io=self._io,
        )

    def start(self) -> None:
        self._loop.start(lambda: self._guarded(lambda: self._feed([contract.Started()])), self._step)

    # --- from other threads -----------------------------------------------------------------------

    def post(self, event: contract.Event) -> None:
        """Queues `event`; never blocks. Dropped after the job has ended."""
        if not self._ending.is_over.is_set():
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
        return self._requests.snapshot(wanted, trigger)

    def operation(self, trigger: str) -> TriggeredOperation | None:
        """See `DurableRequests.operation`."""
        return self._requests.operation(trigger)

    def rescale(self, wanted: RescaleAsked, trigger: str) -> Future[str]:
        """See `DurableRequests.rescale`."""
        return self._requests.rescale(wanted, trigger)

    def cancel(self) -> None:
        """Raises Fenced, Unreachable, OutcomeUnknown: it could not be made durable."""
        self._requests.cancelled()
        self.post(contract.CancelRequested())

    def suspend(self, why: contract.SuspendRequested) -> None:
        """Ends the job's tasks and keeps its snapshots, since the cluster is shut down."""
        self.post(why)

    def wait(self, timeout_s: float | None) -> bool:
        """True once the job has ended and its result is recorded."""
        return self._ending.is_over.wait(timeout_s)

    def abandon(self, why: contract.SuspendRequested, timeout_s: float) -> bool:
        """Suspends the job without waiting for its tasks; the last resort of a shutdown."""
        self._loop.post(_Abandon(why))
        return self._ending.is_over.wait(timeout_s)

    def join(self, timeout_s: float) -> bool:
        """Waits until its thread has ended, clean-up included."""
        return self._loop.join(timeout_s)

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
        if self._ending.outcome is None:
            return True
        self._conclusion.conclude(self._ending, final)
        self._on_ended(self.setup.job)
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
        elif isinstance(event, _Abandon) and self._ending.outcome is None:
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
                self._ending.outcome = left_behind(event)
            if isinstance(event, contract.SlotsGranted):
                self._outgoing.granted(event.leases)
            commands += self._machine.handle(event, self._services.clock.monotonic_ms())
        self._machine.validate()
        self._ending.outcome = next(
            (c for c in commands if isinstance(c, contract.JobEnded)), self._ending.outcome
        )
        final: list[contract.Command] = []
        for command in commands:
            if self._ending.outcome is not None and isinstance(
                command, contract.AnswerRequest | contract.DiscardSnapshot
            ):
                final.append(command)
            else:
                self._perform(command)
        self._outgoing.flush()
        if self._ending.outcome is not None:
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
            self._durable.reached(widths(self._machine.view()))
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
                self._durable.restarts = restarts
                logger.info("event=job_state job=%s state=%s", self.setup.job, state)
                if state not in TERMINAL_STATES:  # the result is recorded once, by `JobConclusion`
                    self.journal.job_state(command)
                if state == "RUNNING":
                    self._requests.job_runs()
            case contract.RecordAttempt():
                if self.setup.has_engine:  # which repeats tasks by itself
                    self._durable.attempted(command.attempt.attempt)
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
                pass  # kept by `_feed`, acted on by `JobConclusion`

    def _committing(self) -> None:
        self._durable.committing(self._machine.sealed())

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
        self._ending.outcome = contract.JobEnded(state=state, failure=failure)
        return ()


@dataclass(frozen=True, slots=True)
class _Abandon:
    why: contract.SuspendRequested


def _journal_of(setup: JobSetup, services: ClusterServices, ports: MasterPorts) -> JobJournal:
    return JobJournal(
        setup.job,
        setup.graph,
        ports.catalogue,
        services.clock,
        restored=setup.restored,
        own=setup.own_restore,
        submitted_ms=setup.start.submitted_ms,
    )

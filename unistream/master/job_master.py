"""The shell around one job's machine: one thread, one mailbox; the machine decides, this obeys.

    events: workers' reports, slots, losses, timers, answers of the storage   ──►  machine.handle
    commands, in order: sends (one ordered sender per worker), slots, timers, storage and source
    discovery (in a small pool), facts for the catalogue                      ◄──

Events that have gathered are decided one after the other, then the machine is validated, then what was
decided is performed: a flood of reports costs one look at all tasks, not one for each report, and what is
said to one worker leaves together.

Whatever fails comes back as an event. An exception inside the machine is a defect of ours: the job ends as
FAILED with the story that led there, rather than hanging.

End of a job: the result is recorded first, then waiting requests are answered, then snapshots that
nothing needs are removed, then the dispatcher is told (a finished job must never come back).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final

from unistream.base.crash_points import crash_point
from unistream.base.ids import VertexId
from unistream.core import contract
from unistream.core.contract import JobView
from unistream.core.job import abandonment
from unistream.core.resource import SlotsReturned, SlotsWanted
from unistream.master.job_info import TERMINAL_STATES, JobInfo, TaskManagerInfo
from unistream.master.job_io import JobIo
from unistream.master.job_services import JobIdentity, JobServices, Machine
from unistream.master.journal import Journal, summed
from unistream.master.loop import Loop
from unistream.master.open_requests import OpenRequests
from unistream.master.outgoing import Outgoing
from unistream.model.checkpoint_figures import CheckpointsInfo
from unistream.model.graph import JobGraph
from unistream.model.messages import TaskFailure

EVENTS_MAX: Final = 256  # decided together; after so many a timer has its turn
STORY_EVENTS: Final = 20  # how far back the story of a defect goes
STORY_EVENT_CHARS: Final = 300
WAIT_MS: Final = 60_000  # a bound for one wait of the loop; nothing depends on it
VIEW_TIMEOUT_S: Final = 1.0  # a picture that the loop does not give in this time is an older one
RESULT_TIMEOUT_S: Final = 10.0  # longest wait for the catalogue to take a result
CLEANUP_TIMEOUT_S: Final = 30.0  # longest wait for superseded snapshots to be removed

logger = logging.getLogger(__name__)


class JobMaster:
    """Runs one job to its end. All public methods may be called from any thread."""

    def __init__(
        self, *, identity: JobIdentity, machine: Machine, services: JobServices, journal: Journal
    ) -> None:
        self.identity = identity
        self.journal = journal
        self._machine = machine
        self._services = services
        self._loop: Loop[contract.Event | _Abandon | _Picture, contract.Timer] = services.create_loop(
            f"job-{identity.job[:8]}"
        )
        self._io = JobIo(
            identity.job,
            pool=services.io,
            storage=services.storage,
            discover=services.discover,
            clock=services.clock,
            post=self.post,
        )
        self._outgoing = Outgoing(identity.job, services.senders, self.post)
        self._story: deque[str] = deque(maxlen=STORY_EVENTS)
        self._requests = OpenRequests()
        self._view = machine.view()
        self._checkpoints = CheckpointsInfo()
        self._end: contract.JobEnded | None = None
        self._ended = threading.Event()
        self._ended_ms: int | None = None

    def start(self) -> None:
        self._loop.start(self._begin, self._step)

    # --- from other threads -----------------------------------------------------------------------

    def post(self, event: contract.Event) -> None:
        """Takes note of `event`; never blocks. After the end it is dropped."""
        if not self._ended.is_set():
            self._loop.post(event)

    def request_snapshot(self, wanted: contract.SnapshotRequest) -> Future[str]:
        """Directory of the snapshot, once it is complete (for a stop: once the job has ended).

        The future raises ConfigError with the reason when it cannot be had, AlreadyEnded if it is too late.
        """
        request, answer = self._requests.add()
        if request is not None:
            target = wanted.target or self._services.savepoint_dir
            self._loop.post(replace(wanted, id=request, target=target))
        return answer

    def rescale(self, parallelism: Mapping[VertexId, int]) -> Future[str]:
        """Gives these vertices another parallelism; the answer ("") comes when the job runs so.

        The future raises ConfigError with the reason when it cannot be done, AlreadyEnded if it is too late.
        """
        request, answer = self._requests.add()
        if request is not None:
            self._loop.post(contract.RescaleRequested(request=request, parallelism=dict(parallelism)))
        return answer

    def cancel(self) -> None:
        self.post(contract.CancelRequested())

    def suspend(self, reason: str) -> None:
        """Ends its tasks and keeps its snapshots: the cluster ends."""
        self.post(contract.SuspendRequested(reason=reason))

    def wait(self, timeout_s: float | None) -> bool:
        """True once the job has ended and its result is recorded."""
        return self._ended.wait(timeout_s)

    def abandon(self, reason: str, timeout_s: float) -> bool:
        """Suspends the job without waiting for its tasks; the last resort of a shutdown."""
        self._loop.post(_Abandon(reason))
        return self._ended.wait(timeout_s)

    def join(self, timeout_s: float) -> bool:
        """Waits until its thread has ended, clean-up included."""
        return self._loop.join(timeout_s)

    @property
    def state(self) -> str:
        """As last seen; exact once the job has ended."""
        return self._view.state if self._end is None or self._ended_ms is None else self._end.state

    @property
    def failure(self) -> TaskFailure | None:
        """Why it has ended, if it has ended as FAILED or SUSPENDED."""
        return None if self._end is None else self._end.failure

    @property
    def graph(self) -> JobGraph:
        """At the parallelism that the job has now."""
        return self.journal.graph

    @property
    def wanted(self) -> JobGraph:
        """At the parallelism that it has when there are enough slots; after all that was asked before."""
        view = self.view()
        return view.wanted or view.graph

    def info(self, workers: Iterable[TaskManagerInfo]) -> JobInfo:
        """A picture of the job; `workers`: those of the cluster."""
        view = self.view()
        subtasks = self.journal.subtasks(view)
        sinks = self.journal.sinks
        used = {s.task_manager for s in subtasks}
        ended = self._end if self._ended_ms is not None else None
        return JobInfo(
            job=self.identity.job,
            name=self.identity.graph.name,
            lineage=self.identity.lineage,
            state=view.state if ended is None else ended.state,
            target=self.identity.target,
            submitted_ms=self.journal.submitted_ms,
            ended_ms=self._ended_ms,
            state_times=self.journal.state_times,
            restarts=view.restarts,
            checkpoints_completed=view.checkpoints_completed,
            checkpoints_failed=view.checkpoints_failed,
            latest_checkpoint=self.journal.latest_checkpoint,
            savepoint=self.journal.savepoint,
            checkpoints=self.journal.checkpoints,
            exceptions=self.journal.exceptions,
            subtasks=subtasks,
            sinks=sinks,
            metrics=summed(subtasks, sinks),
            late_rows=self.journal.late_rows,
            task_managers=tuple(w for w in workers if w.id in used),
            failure=ended.failure if ended else view.failure,
        )

    def checkpoints(self) -> CheckpointsInfo:
        """What has become of its snapshots; kept after its end."""
        self._refresh(self._take_checkpoints)
        return self._checkpoints

    def view(self) -> JobView:
        """What the machine looks like after all that was posted before; after its end, as it was then."""
        self._refresh(self._take_view)
        return self._view

    def _refresh(self, take: Callable[[], None]) -> None:
        """Has a picture taken on the machine's thread. After the end there is only the last one."""
        if self._end is not None:
            return
        if self._loop.is_own_thread:
            take()
        else:
            wanted = _Picture(take)
            self._loop.post(wanted)
            wanted.taken.wait(VIEW_TIMEOUT_S)

    def _take_view(self) -> None:
        self._view = self._machine.view()

    def _take_checkpoints(self) -> None:
        clock = self._services.clock
        self._checkpoints = self._machine.checkpoints(clock.monotonic_ms(), clock.wall_ms())

    # --- the loop ---------------------------------------------------------------------------------

    def _begin(self) -> bool:
        return self._goes_on(lambda: self._feed([contract.Started()]))

    def _step(self) -> bool:
        return self._goes_on(self._take)

    def _goes_on(self, decide: Callable[[], Sequence[contract.Command]]) -> bool:
        """False: with that the job has ended, and all that follows from its end is done."""
        try:
            final = decide()
        except Exception as error:
            self._services.on_defect(error)
            logger.exception("event=job_master_defect job=%s", self.identity.job)
            final = self._give_up(_defect(error, self._story))
        if self._end is None:
            return True
        self._conclude(final)
        self._answer_views()
        return False

    def _answer_views(self) -> None:
        """Whoever asked while the job ended gets its last picture."""
        while not self._loop.is_empty:
            event, _ = self._loop.take(0)
            if isinstance(event, _Picture):
                event.taken.set()

    def _take(self) -> Sequence[contract.Command]:
        """Decides on what has gathered. Returns as `_feed`."""
        event, timer = self._loop.take(WAIT_MS)
        if timer is not None:
            return self._feed([contract.TimerFired(timer)])
        gathered: list[contract.Event] = []
        while event is not None and not isinstance(event, _Picture | _Abandon):
            gathered.append(event)
            event = self._loop.take_waiting() if len(gathered) < EVENTS_MAX else None
        final = self._feed(gathered) if gathered else ()
        if isinstance(event, _Picture):
            event.take()
            event.taken.set()
        elif isinstance(event, _Abandon) and self._end is None:
            latest = self.journal.latest_checkpoint
            why = abandonment(self.identity.job, self.identity.graph.name, event.reason, latest)
            return self._give_up(why, "SUSPENDED")
        return final

    def _feed(self, events: Iterable[contract.Event]) -> Sequence[contract.Command]:
        """Lets the machine decide and performs it. Returns what has to wait for the job's result."""
        commands: list[contract.Command] = []
        for event in events:
            self._story.append(repr(event)[:STORY_EVENT_CHARS])
            if isinstance(event, contract.SlotsGranted):
                self._outgoing.granted(event.leases)
            commands += self._machine.handle(event, self._services.clock.monotonic_ms())
        self._machine.validate()
        self._end = next((c for c in commands if isinstance(c, contract.JobEnded)), None)
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
            self._take_view()
            self._take_checkpoints()
        return final

    def _perform(self, command: contract.Command) -> None:
        job = self.identity.job
        match command:
            case contract.Send():
                self._outgoing.add(command)
            case contract.RequestSlots(requests=requests):
                self._services.resources(SlotsWanted(job=job, requests=requests))
            case contract.ReleaseSlots(requests=keys):
                self._outgoing.flush()  # a worker that is not needed any more is told to end
                self._services.resources(SlotsReturned(job=job, requests=keys))
            case contract.SetTimer(timer=timer, delay_ms=delay_ms):
                self._loop.set_timer(timer, delay_ms)
            case contract.CancelTimer(timer=timer):
                self._loop.cancel_timer(timer)
            case contract.DiscoverSplits() | contract.PrepareDirectory() | contract.WriteManifest():
                self._io.start(command)
            case contract.DiscardSnapshot():
                self._io.discard(command)
            case contract.AnswerRequest():
                self._requests.answer(command)
            case _:
                self._record(command)

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
            case contract.RecordJobState(state=state):
                logger.info("event=job_state job=%s state=%s", self.identity.job, state)
                if state not in TERMINAL_STATES:  # the result is recorded once, by `_conclude`
                    self.journal.job_state(command)
            case contract.RecordAttempt():
                self.journal.attempt(command)
            case contract.RecordException():
                self.journal.exception(command, self._outgoing.address(command.task_manager))
            case contract.RecordCheckpoint(record):
                self.journal.checkpoint(record)
            case contract.RecordGraph(graph):
                told = ", ".join(f"{vertex.name!r}={vertex.parallelism}" for vertex in graph.vertices)
                logger.info("event=job_rescaled job=%s parallelism=[%s]", self.identity.job, told)
                self.journal.rescaled(graph)
            case contract.JobEnded():
                pass  # kept by `_feed`, acted on by `_conclude`

    # --- the end ----------------------------------------------------------------------------------

    def _give_up(self, failure: TaskFailure, state: str = "FAILED") -> Sequence[contract.Command]:
        """The machine cannot go on: cancel what runs, give back all slots. Nothing is deleted."""
        with contextlib.suppress(Exception):  # it is the machine's defect that brought us here
            self._take_view()
            self._take_checkpoints()
        self._outgoing.cancel(self._view.attempts)
        self._services.resources(SlotsReturned(job=self.identity.job))
        self.journal.failure(failure)
        self._end = contract.JobEnded(state=state, failure=failure)
        return ()

    def _conclude(self, final: Sequence[contract.Command]) -> None:
        """Result first, then answers, then clean-up."""
        assert self._end is not None
        crash_point("result.before_record")
        ended_ms = self._services.clock.wall_ms()
        if not self.journal.ended(self._end.state, self._view.restarts, ended_ms).wait(RESULT_TIMEOUT_S):
            logger.error("event=result_not_recorded job=%s state=%s", self.identity.job, self._end.state)
        crash_point("result.recorded")
        self._ended_ms = ended_ms
        self._requests.close(f"job {self.identity.job} has already ended: {self._end.state}")
        for command in final:
            if isinstance(command, contract.AnswerRequest):
                self._requests.answer(command)
        why = f": {self._end.failure.message}" if self._end.failure else ""
        self._requests.reject_all(f"the job ended as {self._end.state} before it was done{why}")
        self._ended.set()
        discards = [self._io.discard(c) for c in final if isinstance(c, contract.DiscardSnapshot)]
        self._services.io.wait([*discards, self._io.forget()], CLEANUP_TIMEOUT_S)
        logger.info("event=job_ended job=%s state=%s", self.identity.job, self._end.state)
        self._services.on_ended(self.identity.job)


@dataclass(frozen=True, slots=True)
class _Abandon:
    reason: str


class _Picture:
    """Of the machine: somebody waits for it to be `taken`."""

    def __init__(self, take: Callable[[], None]) -> None:
        self.take = take
        self.taken = threading.Event()


def _defect(error: Exception, story: Iterable[str]) -> TaskFailure:
    lines = "\n  ".join(story)
    return TaskFailure(
        kind="InternalError",
        message=f"the job's machine failed: {type(error).__name__}: {error}; its last events:\n  {lines}",
        traceback=traceback.format_exc(),
        recoverable=False,
    )

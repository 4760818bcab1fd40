"""The checkpoint coordinator of one job: when a snapshot starts, who takes part, when it is complete.

    PREPARING ──directory──► DELIVERING ──splits delivered──► TRIGGERED ──all acks──► FINALIZING ──► done
        └───────────────────────┴── abort ───────────────────────┘          (the manifest decides)

One snapshot at a time. Ids only grow, also across aborts and restarts. What has started FINALIZING is never
aborted: only the storage knows whether it exists, so the coordinator waits for the answer, asks again when it
is unknown, and deletes nothing of it. Completion is announced only after the manifest is durable.

Requests (savepoint, stop, checkpoint now) wait for the one in flight and go before periodic checkpoints. The
handlers return a `TaskFailure` when the job has to fail over because of what happened.
"""

from __future__ import annotations

from unistream.base.ids import AttemptId, CheckpointId
from unistream.core import job_messages as jm
from unistream.core.checkpoint_failures import FailureCounter, FailureReason, declined_reason
from unistream.core.checkpoint_notices import Notices
from unistream.core.checkpoint_pending import Pending, Phase, Request
from unistream.core.checkpoint_plan import NotAllRunning, plan_checkpoint
from unistream.core.checkpoint_requests import CheckpointRequestDecider, TriggerRequest
from unistream.core.checkpoint_result import PartialFinishingNotSupported
from unistream.core.checkpoint_schedule import CheckpointSchedule
from unistream.core.checkpoint_store import CompletedSnapshots
from unistream.core.execution import ExecutionState
from unistream.core.executions import Execution
from unistream.core.job_run import JobRun
from unistream.core.job_settings import JobSettings
from unistream.core.job_view import CheckpointView
from unistream.core.outbox import Outbox
from unistream.core.sources import Sources
from unistream.model.elements import SnapshotKind
from unistream.model.messages import (
    CheckpointAcked,
    CheckpointDeclined,
    TaskFailure,
)

MANIFEST_TRIES = 3  # an unknown outcome is asked for again this often; the storage has its own timeouts


class CheckpointCoordinator:
    """Decides about snapshots; sends through the outbox.

    Attributes:
        completed: What a restart can continue from.
        stop: The stop that is under way, from its request to the end of the job.
        stop_path: Where its savepoint lies, once that is durable: then the stop is final.
    """

    def __init__(
        self,
        *,
        settings: JobSettings,
        run: JobRun,
        sources: Sources,
        completed: CompletedSnapshots,
        outbox: Outbox,
    ) -> None:
        self._settings = settings
        self._run = run
        self._sources = sources
        self._outbox = outbox
        self._notices = Notices(outbox, run, settings.epoch)
        self.completed = completed
        latest = completed.latest
        after_restored = latest.checkpoint_id + 1 if latest is not None else 1
        self._next_id = max(after_restored, settings.first_checkpoint_id)
        self._schedule = CheckpointSchedule(
            outbox, settings.checkpoint_interval_ms, settings.checkpoint_min_pause_ms
        )
        self._failures = FailureCounter(settings.tolerable_checkpoint_failures)
        self._active = False
        self._pending: Pending | None = None
        self._requests: CheckpointRequestDecider[Request] = CheckpointRequestDecider(
            concurrent_max=1, pause_ms=settings.checkpoint_min_pause_ms
        )
        self._count_requests = 0
        self._seen: set[str] = set()  # a request that is repeated is one request
        self._abandoned: set[CheckpointId] = set()  # aborted before their directory had a name
        self.stop: Request | None = None
        self.stop_path: str | None = None
        self.count_completed = 0
        self.count_failed = 0
        self._last_completed: CheckpointView | None = None

    # --- life of the job --------------------------------------------------------------------------

    def activate(self) -> TaskFailure | None:
        """All tasks run: periodic checkpoints begin, with the first after the least pause."""
        self._active = True
        if self._settings.checkpointing:
            self._schedule.begin()
        return self._advance()

    def suspend(self, reason: str) -> None:
        """The tasks are going to end (restart, cancel, end): gives up what can be given up."""
        if not self._active and self._pending is None:
            return
        self._active = False
        self._schedule.end()
        for waiting in self._requests.clear():
            self._notices.answer(waiting.what, error=reason)
            self._forget_stop(waiting.what)
        pending = self._pending
        if pending is not None and pending.phase is not Phase.FINALIZING:
            self._drop(pending, FailureReason.CHECKPOINT_COORDINATOR_SUSPEND, reason)
            self._refuse(pending, f"{FailureReason.CHECKPOINT_COORDINATOR_SUSPEND.value}: {reason}")

    @property
    def is_active(self) -> bool:
        """All tasks run, and snapshots may be taken."""
        return self._active

    @property
    def is_stopping(self) -> bool:
        """Tasks stand behind the barrier of a stop, or its savepoint is durable: nothing restarts alone."""
        pending = self._pending
        reached = (Phase.TRIGGERED, Phase.FINALIZING)
        return self.stop_path is not None or (
            pending is not None and pending.kind.is_synchronous and pending.phase in reached
        )

    def rebind(self, run: JobRun, sources: Sources) -> None:
        """The job goes on with another parallelism; nothing may be pending."""
        assert self._pending is None, "a snapshot of the former graph is under way"
        self._run, self._sources = run, sources
        self._notices = Notices(self._outbox, run, self._settings.epoch)

    @property
    def is_finalizing(self) -> bool:
        """A manifest may be on its way to the storage: no restart and no end before its outcome."""
        return self._pending is not None and self._pending.phase is Phase.FINALIZING

    def request(self, event: jm.SnapshotRequested) -> TaskFailure | None:
        """A user asks for a snapshot; the answer comes when it is durable (a stop: when the job ended)."""
        return self.want(Request(id=event.request, kind=event.kind, target=event.target))

    def want(self, request: Request) -> TaskFailure | None:
        """As `request`, for the machine's own purposes too."""
        if request.id in self._seen:
            return None
        self._seen.add(request.id)
        if not self._active:
            self._notices.answer(request, error="not all tasks are running; try again when it is RUNNING")
        elif self.stop is not None:
            self._notices.answer(request, error="the job is being stopped already")
        else:
            if request.kind.is_synchronous:
                self.stop = request
            self._count_requests += 1
            self._enqueue(request, self._count_requests)
        return self._advance()

    def _enqueue(self, request: Request, number: int) -> None:
        """It waits for its turn. `number`: which one it is; among equals the first one is served."""
        request.number = number
        wish = TriggerRequest(
            what=request,
            is_savepoint=request.kind is not SnapshotKind.CHECKPOINT,
            is_forced=False,
            is_periodic=False,
            timestamp_ms=number,
        )
        decision = self._requests.offer(wish, now_ms=0, pending=0, is_triggering=True, last_completion_ms=0)
        for rejected, reason in decision.rejected:
            self._notices.answer(rejected.what, error=reason.value)
            self._forget_stop(rejected.what)

    def answer_stop(self, *, error: str | None = None) -> None:
        """The job has ended (or the stop has failed for good): tells who asked for it."""
        stop, self.stop = self.stop, None
        if stop is not None:
            self._notices.answer(stop, path=self.stop_path if error is None else None, error=error)

    def end_of_data(self) -> TaskFailure | None:
        """No task will produce another row: they wait for a checkpoint, so take it now."""
        if self._active and self._settings.checkpointing:
            self._schedule.urgent = True
        return self._advance()

    def task_finished(self, execution: Execution) -> TaskFailure | None:
        """A task ended. A snapshot that still waits for it will never be complete; another is taken. Tasks
        stand still behind the barrier of a stop, so it goes on, with the task as one that has finished."""
        pending = self._pending
        if pending is None or self._waiting(pending.checkpoint_id, execution.attempt) is None:
            return None
        if pending.kind.is_synchronous:
            plan = plan_checkpoint(self._run.plan, self._run.executions.states)
            if not isinstance(plan, NotAllRunning):  # else the job fails for that
                self._notices.trigger(pending, pending.leave(execution.attempt, plan))
                return self._finalize_when_acked(pending)
        reason = FailureReason.CHECKPOINT_DECLINED_TASK_CLOSING
        if pending.request is not None and not pending.kind.is_synchronous:
            self._drop(pending, reason, execution.vertex_name)
            self._enqueue(pending.request, pending.request.number)
            return self._advance()
        self._schedule.urgent = self._settings.checkpointing
        return self._abort(reason, execution.vertex_name)

    # --- one snapshot, in order -------------------------------------------------------------------

    def _advance(self) -> TaskFailure | None:
        """Starts the next snapshot, if one is due and nothing is in the way."""
        if not self._active or self._pending is not None:
            return None
        choice = self._requests.choose(now_ms=0, pending=0, is_triggering=False, last_completion_ms=0)
        request = choice.execute.what if choice.execute is not None else None
        if request is None and (self.stop is not None or not self._schedule.is_due):
            return None
        obstacle = self._obstacle()
        if obstacle is not None:
            if request is not None:
                self._notices.answer(request, error=obstacle.value)
                self._forget_stop(request)
            return None
        checkpoint_id = CheckpointId(self._next_id)
        self._next_id += 1
        kind = request.kind if request is not None else SnapshotKind.CHECKPOINT
        target = request.target if request is not None else None
        self._pending = Pending(checkpoint_id=checkpoint_id, kind=kind, request=request)
        if kind is SnapshotKind.CHECKPOINT:
            self._schedule.started()
        timeout_ms = self._settings.checkpoint_timeout_ms
        self._outbox.add(jm.SetTimer(timer=_timeout(checkpoint_id), delay_ms=timeout_ms))
        self._outbox.add(jm.PrepareDirectory(checkpoint_id=checkpoint_id, kind=kind, target=target))
        return None

    def _obstacle(self) -> FailureReason | None:
        """Why no snapshot can be taken just now."""
        executions = self._run.executions
        if isinstance(plan_checkpoint(self._run.plan, executions.states), NotAllRunning):
            return FailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING
        running = (e for e in executions if e.state is ExecutionState.RUNNING)
        if self._run.has_blocking and any(self._run.blocking_outputs(e) for e in running):
            return FailureReason.BLOCKING_OUTPUT_EXIST
        return None

    def directory_ready(self, event: jm.DirectoryReady) -> TaskFailure | None:
        """The snapshot has a place: its splits and barriers may go out."""
        pending = self._pending
        if pending is not None and pending.is_in(event.checkpoint_id, Phase.PREPARING):
            pending.directory = event.directory
            pending.timestamp_ms = event.timestamp_ms
            pending.phase = Phase.DELIVERING
            self._notices.record(pending, "triggered")
            self._sources.hold()
            return self.splits_delivered()
        if event.checkpoint_id in self._abandoned:
            self._abandoned.discard(event.checkpoint_id)
            self._outbox.add(jm.DiscardSnapshot(event.directory))
        return None

    def directory_failed(self, checkpoint_id: CheckpointId, reason: str) -> TaskFailure | None:
        self._abandoned.discard(checkpoint_id)
        if self._pending is not None and self._pending.is_in(checkpoint_id, Phase.PREPARING):
            return self._abort(FailureReason.IO_EXCEPTION, reason, named=False)
        return None

    def splits_delivered(self) -> TaskFailure | None:
        """An assignment was acknowledged: if it was the last one under way, the tasks are triggered."""
        pending = self._pending
        if pending is None or pending.phase is not Phase.DELIVERING or not self._sources.quiet:
            return None
        plan = plan_checkpoint(self._run.plan, self._run.executions.states)
        if isinstance(plan, NotAllRunning):
            return self._abort(FailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING, str(plan.tasks[0]))
        pending.begin(plan, self._sources.snapshot(pending.checkpoint_id), self._run.executions)
        self._notices.trigger(pending, plan.to_trigger)
        if not pending.triggers:
            self._sources.release()
        return self._finalize_when_acked(pending)

    def trigger_settled(self, token: int, refusal: str | None, *, ended: bool = False) -> TaskFailure | None:
        """A `TriggerCheckpoint` was acknowledged, or (`refusal`) not. `ended`: its worker says that the task
        runs no more; how it has ended is on its way, and a stop waits for that."""
        pending = self._pending
        if pending is None or token not in pending.triggers:
            return None
        pending.triggers.discard(token)
        if not pending.triggers:
            self._sources.release()
        waits = ended and pending.kind.is_synchronous
        if refusal is not None and not waits and pending.phase is Phase.TRIGGERED:
            return self._abort(FailureReason.TRIGGER_CHECKPOINT_FAILURE, refusal)
        return None

    def acked(self, ack: CheckpointAcked) -> TaskFailure | None:
        pending = self._waiting(ack.checkpoint_id, ack.attempt)
        if pending is None:
            return None
        pending.acks[ack.attempt.subtask] = ack
        return self._finalize_when_acked(pending)

    def declined(self, message: CheckpointDeclined) -> TaskFailure | None:
        if self._waiting(message.checkpoint_id, message.attempt) is None:
            return None
        return self._abort(declined_reason(message.reason), f"{message.attempt}: {message.reason}")

    def _waiting(self, checkpoint_id: CheckpointId, attempt: AttemptId) -> Pending | None:
        """The pending snapshot, if it is that one and still waits for that attempt."""
        pending = self._pending
        if pending is None or not pending.is_in(checkpoint_id, Phase.TRIGGERED):
            return None
        return pending if pending.waits_for(attempt) else None

    def expired(self, checkpoint_id: CheckpointId) -> TaskFailure | None:
        """Its time is up. One that is FINALIZING is past that: its outcome is the storage's to say."""
        pending = self._pending
        if pending is None or pending.checkpoint_id != checkpoint_id or pending.phase is Phase.FINALIZING:
            return None
        return self._abort(FailureReason.CHECKPOINT_EXPIRED, pending.waiting_text())

    def interval_elapsed(self, timer: jm.Timer) -> TaskFailure | None:
        self._schedule.fired(timer)
        return self._advance()

    def _finalize_when_acked(self, pending: Pending) -> TaskFailure | None:
        if not pending.is_fully_acked:
            return None
        try:
            manifest = pending.manifest(self._settings, self._run.graph)
        except PartialFinishingNotSupported as error:
            return self._abort(FailureReason.FINALIZE_CHECKPOINT_FAILURE, str(error))
        pending.phase = Phase.FINALIZING
        self._outbox.add(jm.CancelTimer(_timeout(pending.checkpoint_id)))
        self._outbox.add(jm.WriteManifest(directory=pending.directory or "", manifest=manifest))
        return None

    def manifest_durable(self, checkpoint_id: CheckpointId) -> TaskFailure | None:
        """The snapshot is complete: announce, then discard what it replaces."""
        pending = self._pending
        if pending is None or not pending.is_in(checkpoint_id, Phase.FINALIZING):
            return None
        self._pending = None
        path = pending.directory or ""
        self.count_completed += 1
        self._notices.record(pending, "completed")
        self._last_completed = pending.view("completed")
        self._failures.succeeded(checkpoint_id)
        if pending.triggers:
            self._sources.release()
        dropped: list[str] = []
        if pending.kind is not SnapshotKind.SAVEPOINT:
            dropped = self.completed.add(path, pending.written)
            self._sources.completed(checkpoint_id)
            self._notices.completed(pending)
        if pending.kind.is_synchronous:
            self.stop_path = path
        elif pending.request is not None:
            self._notices.answer(pending.request, path=path)
        for directory in dropped:
            self._outbox.add(jm.DiscardSnapshot(directory))
        if self._active:
            self._schedule.completed()
        return self._advance()

    def announce(self, execution: Execution, checkpoint_id: CheckpointId) -> None:
        """Tells one task of completion once more."""
        self._notices.completed_to(execution, checkpoint_id)

    def manifest_failed(self, event: jm.ManifestFailed) -> TaskFailure | None:
        """Decides what a failed write means: tried again, given up, or another leader has won."""
        pending = self._pending
        if pending is None or not pending.is_in(event.checkpoint_id, Phase.FINALIZING):
            return None
        if event.unknown and pending.manifest_tries < MANIFEST_TRIES:
            pending.manifest_tries += 1
            self._outbox.add(jm.WriteManifest(directory=pending.directory or "", manifest=pending.written))
            return None
        if event.fenced:
            self.completed.fenced()
            self._abort(FailureReason.FINALIZE_CHECKPOINT_FAILURE, event.reason, discard=False)
            return TaskFailure(
                kind="Fenced", message=f"another leader owns this job: {event.reason}", recoverable=False
            )
        certain = not event.unknown and pending.manifest_tries == 1  # an earlier try may have written it
        return self._abort(FailureReason.FINALIZE_CHECKPOINT_FAILURE, event.reason, discard=certain)

    # --- failing one ------------------------------------------------------------------------------

    def _abort(
        self, reason: FailureReason, detail: str, *, discard: bool = True, named: bool = True
    ) -> TaskFailure | None:
        """Gives up the pending snapshot.

        `discard` False: it may exist on the storage. `named` False: it has and will get no directory.
        """
        pending = self._pending
        assert pending is not None, "nothing to abort"
        reached_tasks = pending.phase in (Phase.TRIGGERED, Phase.FINALIZING)
        self._drop(pending, reason, detail, discard=discard, named=named)
        text = f"{pending.kind.value} {pending.checkpoint_id} failed: {reason.value} ({detail})"
        self._refuse(pending, text)
        if pending.kind.is_synchronous:
            if reached_tasks and self._active:  # tasks stand still behind its barrier
                return TaskFailure(kind=reason.name, message=text)
        elif self._failures.failed(
            pending.checkpoint_id, reason, savepoint=pending.kind is SnapshotKind.SAVEPOINT
        ):
            return TaskFailure(
                kind=reason.name,
                message=f"{text}; that is more than execution.checkpointing.tolerable-failed-checkpoints",
            )
        return self._advance()

    def _drop(
        self,
        pending: Pending,
        reason: FailureReason,
        detail: str,
        *,
        discard: bool = True,
        named: bool = True,
    ) -> None:
        """Ends the pending snapshot without success, and cleans up behind it."""
        self._pending = None
        self.count_failed += 1
        self._outbox.add(jm.CancelTimer(_timeout(pending.checkpoint_id)))
        if pending.phase is Phase.PREPARING:
            if named:
                self._abandoned.add(pending.checkpoint_id)
        else:
            self._sources.release()
        latest = self.completed.latest
        self._notices.aborted(pending, latest.checkpoint_id if latest is not None else None)
        self._notices.record(pending, "failed", f"{reason.value}: {detail}")
        if pending.directory is not None and discard and not self.completed.is_fenced:
            self._outbox.add(jm.DiscardSnapshot(pending.directory))

    def _refuse(self, pending: Pending, error: str) -> None:
        """Who asked for the pending snapshot is told that it failed."""
        if pending.request is not None:
            self._notices.answer(pending.request, error=error)
            self._forget_stop(pending.request)

    def _forget_stop(self, request: Request) -> None:
        if self.stop is request:
            self.stop = None

    def views(self) -> tuple[CheckpointView | None, tuple[CheckpointView, ...]]:
        """The latest completed snapshot of this run, and those in progress."""
        running = (self._pending.view(self._pending.phase.value),) if self._pending is not None else ()
        return self._last_completed, running

    def validate(self) -> None:
        """Invariants I6 (ids grow) and manifest only after every acknowledgement."""
        latest = self.completed.latest
        assert latest is None or latest.checkpoint_id < self._next_id, "an id was given out twice"
        if self._pending is not None:
            assert self._pending.checkpoint_id < self._next_id, "an id was given out twice"
            if self._pending.phase is Phase.FINALIZING:
                assert self._pending.is_fully_acked, "a manifest before every acknowledgement"
        assert self.stop is None or self.stop.kind.is_synchronous, "only a stop stops"


def _timeout(checkpoint_id: CheckpointId) -> jm.Timer:
    return jm.Timer(jm.TimerKind.CHECKPOINT_TIMEOUT, checkpoint_id)

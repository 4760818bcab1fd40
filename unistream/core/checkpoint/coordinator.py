"""The checkpoint coordinator of one job: when a snapshot starts, who takes part, when it is complete.

    PREPARING ──directory──► DELIVERING ──splits delivered──► TRIGGERED ──all acks──► FINALIZING ──► done
        └───────────────────────┴── abort ───────────────────────┘          (the manifest decides)

Several snapshots may be under way, but only one is being started at a time, and one is FINALIZING. A
checkpoint that completes gives up older checkpoints, never savepoints. Ids only grow, also across aborts and
restarts. What has started FINALIZING is never aborted: only the storage knows whether it exists, so the
coordinator waits for the answer, asks again when it is unknown, and deletes nothing of it. Completion is
announced only after the manifest is durable.

A drain takes two snapshots of the same positions with one trigger: a resumable savepoint before the end of
data, and the terminal one behind it. Both are durable, or the drain has failed.

The handlers return a `TaskFailure` when the job has to fail over because of what happened.
"""

from __future__ import annotations

from unistream.base.ids import CheckpointId, VertexId
from unistream.core import contract
from unistream.core.checkpoint.failures import FailureCounter, declined_reason
from unistream.core.checkpoint.history import CheckpointHistory
from unistream.core.checkpoint.notifications import Notices
from unistream.core.checkpoint.pending import Pending, Phase, Request
from unistream.core.checkpoint.pendings import PendingSnapshots
from unistream.core.checkpoint.plan import NotAllRunning
from unistream.core.checkpoint.queue import SnapshotQueue, Wish
from unistream.core.checkpoint.result import PartialFinishingNotSupported
from unistream.core.checkpoint.sources import Sources
from unistream.core.checkpoint.start import Obstacle, SnapshotStart
from unistream.core.checkpoint.store import CompletedSnapshots, SharedFileGone
from unistream.core.contract import FailureReason, JobSettings, JobStatus, Outbox, Retention
from unistream.core.execution import Execution, JobRun
from unistream.model.checkpoint_figures import CheckpointsInfo
from unistream.model.elements import SnapshotKind
from unistream.model.messages import CheckpointAcked, CheckpointDeclined, TaskFailure

MANIFEST_TRIES = 3  # an unknown outcome is asked for again this often; the storage has its own timeouts


class CheckpointCoordinator:
    """Decides about snapshots; sends through the outbox.

    Attributes:
        completed: What a restart can continue from.
        history: Figures of snapshots, for people.
        stop_path: Where the savepoint of the stop that is under way lies, once it is durable: then the stop
            is final.
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
        self._failures = FailureCounter(settings.tolerable_checkpoint_failures)
        self._queue = SnapshotQueue(settings, outbox, self._answer_error)
        self._active = False
        self.history = CheckpointHistory(settings.checkpoints_history)
        self._pendings = PendingSnapshots(
            settings,
            outbox,
            completed=completed,
            history=self.history,
            notices=self._notices,
            sources=sources,
        )
        self._starts = SnapshotStart(
            self._pendings,
            self._notices,
            run,
            sources,
            after_finish=settings.checkpoints_after_finish,
        )
        self.stop_path: str | None = None

    def at(self, now_ms: int) -> None:
        """The time of the machine's clock at which the events that follow happen; for the history only."""
        self._pendings.now_ms = now_ms

    # --- life of the job --------------------------------------------------------------------------

    @property
    def stop(self) -> Request | None:
        """The stop that is under way, from its request to the end of the job."""
        return self._queue.stop

    @property
    def is_active(self) -> bool:
        """All tasks run, and snapshots may be taken."""
        return self._active

    @property
    def why_inactive(self) -> str:
        """When it is not active: why nobody can have a snapshot, and what to do."""
        return self._run.why_inactive

    @property
    def is_stopping(self) -> bool:
        """Tasks stand behind the barrier of a stop, or its savepoint is durable: nothing restarts alone."""
        reached = (Phase.TRIGGERED, Phase.FINALIZING)
        return self.stop_path is not None or any(
            pending.stands_behind and pending.phase in reached for pending in self._pendings
        )

    @property
    def is_finalizing(self) -> bool:
        """A manifest may be on its way to the storage: no restart and no end before its outcome."""
        return self._pendings.is_finalizing

    def activate(self) -> TaskFailure | None:
        """All tasks run: periodic checkpoints begin, with the first after the least pause."""
        self._active = True
        if self._settings.checkpointing:
            self._queue.schedule.begin()
        return self._go_on()

    def suspend(self, reason: str) -> None:
        """The tasks are going to end (restart, cancel, end): gives up what can be given up."""
        if not self._active and not len(self._pendings):
            return
        self._active = False
        self.completed.tasks_died()
        self._queue.clear(reason)
        why = FailureReason.CHECKPOINT_COORDINATOR_SUSPEND
        for pending in self._pendings:
            if pending.phase is not Phase.FINALIZING:
                asked = pending.asked
                self._pendings.drop_both(pending, why, reason)
                self._refuse(asked, f"{why.value}: {reason}")

    def step_down(self, reason: str) -> None:
        """Another leader goes on: requests are refused, and what is pending stays as it is."""
        self._active = False
        self._queue.clear(reason)
        for pending in self._pendings:
            self._refuse(pending, f"{reason}; it may still become complete")

    def rebind(self, run: JobRun, sources: Sources) -> None:
        """The job goes on with another parallelism; nothing may be pending."""
        assert not len(self._pendings), "a snapshot of the former graph is under way"
        self._run, self._sources = run, sources
        self._notices = Notices(self._outbox, run, self._settings.epoch)
        self._pendings.rebind(self._notices, sources)
        self._starts.rebind(self._notices, run, sources)

    def request(self, event: contract.SnapshotRequested) -> TaskFailure | None:
        """A user asks for a snapshot; the answer comes when it is durable (a stop: when the job ended)."""
        request = Request(
            id=event.request, kind=event.kind, target=event.target, format=event.format, full=event.full
        )
        return self.want(request)

    def want(self, request: Request) -> TaskFailure | None:
        """As `request`, for the machine's own purposes too."""
        if self._queue.is_repeated(request):
            return None
        if not self._active:
            self._answer_error(request, self.why_inactive)
        elif self.stop is not None:
            self._answer_error(request, "the job is being stopped already")
        else:
            self._queue.put(request)
        return self._go_on()

    def answer_stop(self, *, error: str | None = None) -> None:
        """The job has ended (or the stop has failed for good): tells who asked for it."""
        stop, self._queue.stop = self._queue.stop, None
        if stop is not None and error is not None:
            self._answer_error(stop, error)
        elif stop is not None:
            self._notices.answer(stop, path=self.stop_path)

    def discard_at_end(self, status: JobStatus, retention: Retention) -> None:
        """The job has ended as `status`: snapshots that nothing needs go."""
        for directory in self.completed.discard_at_end(status, retention):
            self._pendings.discard_completed(directory)
        if status.is_globally_terminal:
            self._pendings.sweep()

    def end_of_data(self) -> TaskFailure | None:
        """No task will produce another row: they wait for a checkpoint, so take it now."""
        if self._active and self._settings.checkpointing and self._settings.checkpoints_after_finish:
            self._queue.schedule.urgent = True
        return self._go_on()

    def obstacle_gone(self) -> TaskFailure | None:
        """What stood in the way of the next snapshot may be over."""
        return self._go_on()

    def task_finished(self, execution: Execution) -> TaskFailure | None:
        """A task ended: what becomes of the snapshots that still wait for it."""
        for pending in self._pendings:
            if pending.awaits(execution.attempt):
                failure = self._participant_ended(pending, execution)
                if failure is not None:
                    return failure
        # it may have been the last writer of a stored exchange, which no snapshot could be taken beside
        writes = self._run.stored and not self._run.executions.all_finished
        return self._go_on() if writes else None

    def _participant_ended(self, pending: Pending, execution: Execution) -> TaskFailure | None:
        """A snapshot that waits for a task that has ended will never be complete; another is taken. Tasks
        stand still behind the barrier of a stop, so that goes on, with the task as one that has finished."""
        if pending.stands_behind:
            plan = self._starts.plan()
            if not isinstance(plan, NotAllRunning):  # else the job fails for that
                late = pending.leave(execution.attempt, plan)
                if not pending.is_resumable_half:  # its partner's trigger is its own
                    self._notices.trigger(pending, late)
                return self._go_on()
        reason = FailureReason.CHECKPOINT_DECLINED_TASK_CLOSING
        if pending.request is not None and not pending.kind.is_synchronous:
            self._pendings.drop(pending, reason, execution.vertex_name)
            self._queue.put_back(pending.request)
            return self._go_on()
        self._queue.schedule.urgent = self._settings.checkpointing
        return self._abort(pending, reason, execution.vertex_name)

    # --- one snapshot, in order -------------------------------------------------------------------

    def _go_on(self) -> TaskFailure | None:
        """Writes the manifest that is due, and starts the next snapshot if nothing is in the way."""
        failure = self._finalize_next()
        while failure is None and self._may_start:
            wish = self._queue.next(len(self._pendings))
            if wish is None:
                break
            impediment = self._starts.impediment()
            if impediment is None:
                self._begin(wish)
            elif wish.request is None:
                break
            else:
                self._queue.refuse(wish.request, impediment.value)
        return failure

    @property
    def _may_start(self) -> bool:
        """Barriers may go out: those of others are all out, and no task stands still behind that of a stop,
        where another would find it only when the job ends."""
        return self._active and not self._pendings.is_starting and not self.is_stopping

    def _begin(self, wish: Wish) -> None:
        if wish.kind is SnapshotKind.CHECKPOINT:
            self._queue.schedule.started()
        self._starts.open(wish.kind, wish.request)

    def directory_ready(self, event: contract.DirectoryReady) -> TaskFailure | None:
        """The snapshot has a place: its splits and barriers may go out, with those of its partner."""
        return self._after(self._starts.directory_ready(event))

    def directory_failed(self, checkpoint_id: CheckpointId, reason: str) -> TaskFailure | None:
        return self._after(self._starts.directory_failed(checkpoint_id, reason))

    def splits_delivered(self) -> TaskFailure | None:
        """An assignment was acknowledged: if it was the last one under way, the tasks are triggered."""
        return self._after(self._starts.splits_delivered())

    def trigger_settled(self, token: int, refusal: str | None, *, ended: bool = False) -> TaskFailure | None:
        """See `SnapshotStart.trigger_settled`."""
        return self._after(self._starts.trigger_settled(token, refusal, ended=ended))

    def _after(self, obstacle: Obstacle | None) -> TaskFailure | None:
        """A step of the beginning was taken, or cannot be."""
        if obstacle is None:
            return self._go_on()
        return self._abort(obstacle.pending, obstacle.reason, obstacle.detail, named=obstacle.named)

    def acked(self, ack: CheckpointAcked) -> TaskFailure | None:
        pending = self._pendings.waiting(ack.checkpoint_id, ack.attempt)
        if pending is None:
            self._pendings.acked_too_late(ack)
            return None
        self._pendings.acked(pending, ack)
        return self._go_on()

    def declined(self, message: CheckpointDeclined) -> TaskFailure | None:
        pending = self._pendings.waiting(message.checkpoint_id, message.attempt)
        if pending is None:
            return None
        reason, said = declined_reason(message.reason)
        task = self._run.executions[message.attempt.subtask].title
        return self._abort(pending, reason, f"{task}: {said}" if said else task, by_task=True)

    def expired(self, checkpoint_id: CheckpointId) -> TaskFailure | None:
        """Its time is up. One that all have acknowledged is past that: it waits for the storage only, of a
        drain for its partner's manifest."""
        pending = self._pendings.get(checkpoint_id)
        acked = pending is not None and pending.phase is Phase.TRIGGERED and pending.is_fully_acked
        if pending is None or acked or pending.phase is Phase.FINALIZING:
            return None
        late = pending.waiting_text(self._run.executions)
        return self._abort(pending, FailureReason.CHECKPOINT_EXPIRED, late)

    def interval_elapsed(self, timer: contract.Timer) -> TaskFailure | None:
        self._queue.schedule.fired(timer)
        return self._go_on()

    # --- its manifest -----------------------------------------------------------------------------

    def _finalize_next(self) -> TaskFailure | None:
        """Writes the manifest that is due."""
        pending = self._pendings.next_to_finalize()
        if pending is None:
            return None
        try:
            manifest = pending.manifest(self._settings, self._run.graph, self.completed.resolved)
        except PartialFinishingNotSupported as error:  # nobody's fault: possible when all of them have ended
            return self._abort(pending, FailureReason.CHECKPOINT_DECLINED_TASK_CLOSING, str(error))
        except SharedFileGone as error:
            return self._abort(pending, FailureReason.FINALIZE_CHECKPOINT_FAILURE, str(error))
        pending.phase = Phase.FINALIZING
        self._outbox.add(contract.CancelTimer(pending.timeout))
        self._outbox.add(contract.WriteManifest(directory=pending.directory or "", manifest=manifest))
        return None

    def manifest_durable(self, checkpoint_id: CheckpointId) -> TaskFailure | None:
        """The snapshot is complete: announce, then discard what it replaces."""
        pending = self._pendings.within(checkpoint_id, Phase.FINALIZING)
        if pending is None:
            return None
        self._pendings.completed(pending)
        if pending.orphaned:
            return self._go_on()
        self._failures.succeeded(checkpoint_id)
        dropped: list[str] = []
        if pending.kind is not SnapshotKind.SAVEPOINT:
            dropped = self.completed.add(pending.directory or "", pending.written)
            self._sources.completed(checkpoint_id)
            self._notices.completed(pending)
            self._subsume(checkpoint_id)
        if pending.kind.is_synchronous:
            self.stop_path = pending.directory
        elif pending.request is not None:
            self._notices.answer(pending.request, path=pending.directory)
        for directory in dropped:
            self._pendings.discard_completed(directory)
        if self._active:
            if pending.kind is SnapshotKind.CHECKPOINT:
                self._pendings.sweep(before=checkpoint_id)
            self._queue.schedule.completed()
        return self._go_on()

    def _subsume(self, completed: CheckpointId) -> None:
        """Older checkpoints are not needed any more; savepoints are their users'."""
        why = FailureReason.CHECKPOINT_SUBSUMED
        for pending in self._pendings:
            if pending.checkpoint_id < completed and pending.kind is SnapshotKind.CHECKPOINT:
                self._pendings.drop(pending, why, f"checkpoint {completed}")
                self._refuse(pending, why.value)

    def announce(self, execution: Execution, checkpoint_id: CheckpointId) -> None:
        """Tells one task of completion once more."""
        self._notices.completed_to(execution, checkpoint_id)

    def manifest_failed(self, event: contract.ManifestFailed) -> TaskFailure | None:
        """Decides what a failed write means: tried again, given up, or another leader has won."""
        pending = self._pendings.within(event.checkpoint_id, Phase.FINALIZING)
        if pending is None:
            return None
        reason = FailureReason.FINALIZE_CHECKPOINT_FAILURE
        if event.unknown and pending.manifest_tries < MANIFEST_TRIES:
            pending.manifest_tries += 1
            self._outbox.add(
                contract.WriteManifest(directory=pending.directory or "", manifest=pending.written)
            )
            return None
        if event.fenced:
            self.completed.fenced()
            self._abort(pending, reason, event.reason, discard=False)
            return TaskFailure(
                kind="Fenced", message=f"another leader owns this job: {event.reason}", recoverable=False
            )
        certain = not event.unknown and pending.manifest_tries == 1  # an earlier try may have written it
        return self._abort(pending, reason, event.reason, discard=certain)

    # --- failing one ------------------------------------------------------------------------------

    def _abort(
        self,
        pending: Pending,
        reason: FailureReason,
        detail: str,
        *,
        discard: bool = True,
        named: bool = True,
        by_task: bool = False,
    ) -> TaskFailure | None:
        """Gives up a snapshot, of a drain both.

        `discard` False: it may exist on the storage. `named` False: it has and will get no directory.
        `by_task`: a task could not do its part; what fails here of a savepoint is nobody's but the asker's.
        """
        reached_tasks = pending.phase in (Phase.TRIGGERED, Phase.FINALIZING)
        asked = pending.asked
        self._pendings.drop_both(pending, reason, detail, discard=discard, named=named)
        text = f"{asked.kind.title} {asked.checkpoint_id} failed: {reason.value} ({detail})"
        self._refuse(asked, text)
        if asked.kind.is_synchronous:
            if reached_tasks and self._active:  # tasks stand still behind its barrier
                return TaskFailure(kind=reason.name, message=text)
        elif self._failures.failed(
            asked.checkpoint_id, reason, savepoint=asked.kind is SnapshotKind.SAVEPOINT and not by_task
        ):
            return TaskFailure(
                kind=reason.name,
                message=f"{text}; that is more than execution.checkpointing.tolerable-failed-checkpoints",
            )
        return self._go_on()

    def _refuse(self, pending: Pending, error: str) -> None:
        """Who asked for the pending snapshot is told that it failed."""
        if pending.request is not None:
            self._queue.refuse(pending.request, error)

    def _answer_error(self, request: Request, error: str) -> None:
        self._notices.answer(request, error=error)

    def restored(self) -> None:
        """Tasks start from the latest snapshot, if there is one; for the history only."""
        latest = self.completed.latest
        if latest is not None:
            manifest = latest.manifest
            now_ms = self._pendings.now_ms
            self.history.restored(manifest.checkpoint_id, manifest.kind, latest.directory, now_ms)

    def figures(self, names: dict[VertexId, str], now_ms: int, wall_ms: int) -> CheckpointsInfo:
        """See `CheckpointHistory.info`."""
        return self.history.info(self._pendings, names, now_ms, wall_ms)

    def validate(self) -> None:
        """Invariants of the pending snapshots, and: only a stop stops."""
        self._pendings.validate()
        assert self.stop is None or self.stop.kind.is_synchronous, "only a stop stops"

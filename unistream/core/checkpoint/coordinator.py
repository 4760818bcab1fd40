"""The checkpoint coordinator of one job: when a snapshot starts and is complete.

    PREPARING ──directory──► DELIVERING ──splits delivered──► TRIGGERED ──all acks──► FINALIZING ──► done
        └───────────────────────┴── abort ───────────────────────┘          (the manifest decides)

Several snapshots may be under way, but only one is being started at a time, and one is FINALIZING. A
checkpoint that completes gives up older checkpoints, never savepoints. Ids only grow, also across aborts and
restarts. What has started FINALIZING is never aborted: only the storage knows whether it exists, so the
coordinator waits for the answer, tries again when it is unknown, and deletes nothing of it. Completion is
announced only after the manifest is durable.

A drain takes two snapshots of the same positions with one trigger: a resumable savepoint before the end of
data, and the terminal one behind it. Both are durable, or the drain has failed.

The handlers return a `TaskFailure` when the job has to fail over because of what happened.
"""

from __future__ import annotations

from unistream.base.ids import CheckpointId, VertexId
from unistream.core import contract
from unistream.core.checkpoint.failures import FailureCounter, declined_reason
from unistream.core.checkpoint.finalization import Finalization
from unistream.core.checkpoint.history import CheckpointHistory
from unistream.core.checkpoint.notifications import Notifications
from unistream.core.checkpoint.pending import CheckpointPhase, PendingCheckpoint
from unistream.core.checkpoint.pendings import PendingSnapshots
from unistream.core.checkpoint.plan import NotAllRunning
from unistream.core.checkpoint.queue import PERIODIC, PERIODIC_ALIGNED, SnapshotQueue
from unistream.core.checkpoint.sources import Sources
from unistream.core.checkpoint.start import Obstacle, SnapshotStart
from unistream.core.checkpoint.store import CompletedSnapshots
from unistream.core.execution import Execution, JobRun
from unistream.model.checkpoint_figures import CheckpointsInfo
from unistream.model.failure_reason import FailureReason
from unistream.model.job_status import JobStatus
from unistream.model.messages import CheckpointAcked, CheckpointDeclined, TaskFailure
from unistream.model.snapshot_kind import SnapshotKind


class CheckpointCoordinator:
    """Decides about snapshots; sends through the outbox.

    Attributes:
        completed: What a restart can continue from.
        history: Figures of snapshots, for people.
        stop_path: Directory of the savepoint of the stop in progress, once it is durable: then the stop is
            final.
    """

    def __init__(
        self,
        *,
        settings: contract.JobSettings,
        run: JobRun,
        sources: Sources,
        completed: CompletedSnapshots,
        outbox: contract.CommandOutbox,
    ) -> None:
        self._settings = settings
        self._run = run
        self._sources = sources
        self._outbox = outbox
        self._notifications = Notifications(outbox, run, settings.epoch)
        self.completed = completed
        self._failures = FailureCounter(settings.tolerable_checkpoint_failures)
        self._queue = SnapshotQueue(settings, outbox, self._answer_error)
        self._active = False
        self.history = CheckpointHistory(settings.checkpoints_history, completed.totals)
        self._pendings = PendingSnapshots(
            settings,
            outbox,
            completed=completed,
            history=self.history,
            notifications=self._notifications,
            sources=sources,
        )
        self._starts = SnapshotStart(self._pendings, self._notifications, run, sources, settings)
        self._finalization = Finalization(settings, outbox, self._pendings, completed)
        self.stop_path = completed.concluding

    def at(self, now_ms: int) -> None:
        """The time of the machine's clock at which the events that follow happen; for the history only."""
        self._pendings.now_ms = now_ms

    # --- life of the job --------------------------------------------------------------------------

    @property
    def stop(self) -> contract.SnapshotRequest | None:
        """The stop that is under way, from its request to the end of the job."""
        return self._queue.stop

    @property
    def is_active(self) -> bool:
        """All tasks run, and snapshots may be taken."""
        return self._active

    @property
    def why_inactive(self) -> str:
        """When it is not active: why no snapshot can be taken, and what to do."""
        return self._run.why_inactive

    @property
    def is_stopping(self) -> bool:
        """Tasks stand behind the barrier of a stop, or its savepoint is durable: nothing restarts alone."""
        reached = (CheckpointPhase.TRIGGERED, CheckpointPhase.FINALIZING)
        standing = any(pending.stands_behind and pending.phase in reached for pending in self._pendings)
        return self.stop_path is not None or standing

    @property
    def is_finalizing(self) -> bool:
        """A manifest may be on its way to the storage: no restart and no end before its outcome."""
        return self._pendings.is_finalizing

    def activate(self) -> TaskFailure | None:
        """All tasks run: periodic checkpoints begin, with the first after the least pause."""
        self._active = not self._run.is_batch
        if self._settings.checkpointing:
            self._queue.schedule.begin(backlog=self._sources.reads_backlog)
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
            if pending.phase is not CheckpointPhase.FINALIZING:
                requested = pending.requested
                self._pendings.drop_both(pending, why, reason)
                self._queue.refuse(requested.request, f"{why.value}: {reason}")

    def step_down(self, reason: str) -> None:
        """Another leader goes on: requests are refused, and what is pending stays as it is."""
        self._active = False
        self._queue.clear(reason)
        for pending in self._pendings:
            self._queue.refuse(pending.request, f"{reason}; it may still become complete")

    def rebind(self, run: JobRun, sources: Sources) -> None:
        """The job goes on with another parallelism; nothing may be pending."""
        assert not len(self._pendings), "a snapshot of the former graph is under way"
        self._run, self._sources = run, sources
        self._notifications = Notifications(self._outbox, run, self._settings.epoch)
        self._pendings.rebind(self._notifications, sources)
        self._starts.rebind(self._notifications, run, sources)

    def request(self, request: contract.SnapshotRequest) -> TaskFailure | None:
        """A snapshot is requested; the answer comes when it is durable (a stop: when the job has ended)."""
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
        """Answers the request for the stop: the job has ended, or the stop has failed for good."""
        stop, self._queue.stop = self._queue.stop, None
        if stop is not None and error is not None:
            self._answer_error(stop, error)
        elif stop is not None:
            self._notifications.answer(stop, path=self.stop_path)

    def discard_at_end(self, status: JobStatus, retention: contract.ExternalizedCheckpointRetention) -> None:
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

    def obstacle_removed(self) -> TaskFailure | None:
        """What stood in the way of the next snapshot, or a backlog, may be over."""
        self._queue.schedule.backlog(self._sources.reads_backlog)
        return self._go_on()

    def task_finished(self, execution: Execution) -> TaskFailure | None:
        """A task ended: snapshots that still wait for it go on without it or are aborted."""
        for pending in self._pendings:
            if pending.awaits(execution.attempt):
                failure = self._participant_ended(pending, execution)
                if failure is not None:
                    return failure
        # it may have been the last writer of a stored exchange, during which no snapshot can be taken
        writes = self._run.stored and not self._run.executions.all_finished
        return self._go_on() if writes else None

    def _participant_ended(self, pending: PendingCheckpoint, execution: Execution) -> TaskFailure | None:
        """A snapshot that waits for a task that has ended will never be complete; another is taken. Tasks
        stand still behind the barrier of a stop, so that goes on, with the task as one that has finished."""
        if pending.stands_behind:
            plan = self._starts.plan()
            if not isinstance(plan, NotAllRunning):  # else the job fails for that
                late = pending.leave(execution.attempt, plan)
                if not pending.is_resumable_half:  # its partner's trigger is its own
                    self._notifications.trigger(pending, late)
                return self._go_on()
        reason = FailureReason.CHECKPOINT_DECLINED_TASK_CLOSING
        if pending.request.is_answered and not pending.kind.is_synchronous:
            self._pendings.drop(pending, reason, execution.vertex_name)
            self._queue.put_back(pending.request)
            return self._go_on()
        self._queue.schedule.urgent = self._settings.checkpointing
        return self._abort(Obstacle(pending, reason, execution.vertex_name))

    # --- one snapshot, in order -------------------------------------------------------------------

    def _go_on(self) -> TaskFailure | None:
        """Writes the manifest that is due, and starts the next snapshot if nothing is in the way."""
        obstacle = self._finalization.write_next(self._run.graph)
        if obstacle is not None:
            return self._abort(obstacle)
        while self._may_start:
            request = self._queue.next(len(self._pendings))
            if request is None:
                break
            impediment = self._starts.impediment()
            if impediment is None:
                self._begin(request)
            elif not request.is_answered:
                break
            else:
                self._queue.refuse(request, impediment.value)
        return None

    @property
    def _may_start(self) -> bool:
        """Barriers may go out: those of others are all out, and no task stands still behind that of a stop,
        where another would find it only when the job ends."""
        return self._active and not self._pendings.is_starting and not self.is_stopping

    def _begin(self, request: contract.SnapshotRequest) -> None:
        if request.kind is SnapshotKind.CHECKPOINT:
            self._queue.schedule.started()
        if request is PERIODIC and self._sources.awaits_checkpoint:
            request = PERIODIC_ALIGNED
        self._starts.open(request)

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
        return self._go_on() if obstacle is None else self._abort(obstacle)

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
        detail = f"{task}: {said}" if said else task
        return self._abort(Obstacle(pending, reason, detail, by_task=True))

    def expired(self, checkpoint_id: CheckpointId) -> TaskFailure | None:
        """Its time is up. One that all have acknowledged is past that: it waits for the storage only, of a
        drain for its partner's manifest."""
        pending = self._pendings.get(checkpoint_id)
        acked = pending is not None and pending.phase is CheckpointPhase.TRIGGERED and pending.is_fully_acked
        if pending is None or acked or pending.phase is CheckpointPhase.FINALIZING:
            return None
        late = pending.waiting_text(self._run.executions)
        return self._abort(Obstacle(pending, FailureReason.CHECKPOINT_EXPIRED, late))

    def interval_elapsed(self, timer: contract.Timer) -> TaskFailure | None:
        self._queue.schedule.fired(timer)
        return self._go_on()

    # --- its manifest -----------------------------------------------------------------------------

    def manifest_durable(self, checkpoint_id: CheckpointId) -> TaskFailure | None:
        """The snapshot is complete: announce, then discard what it replaces."""
        pending = self._pendings.within(checkpoint_id, CheckpointPhase.FINALIZING)
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
            self._notifications.completed(pending)
            self._subsume(checkpoint_id)
        if pending.kind.is_synchronous:
            self.stop_path = pending.directory
        elif pending.request.is_answered:
            self._notifications.answer(pending.request, path=pending.directory)
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
                self._queue.refuse(pending.request, why.value)

    def announce(self, execution: Execution, checkpoint_id: CheckpointId) -> None:
        """Tells one task of completion once more."""
        completed = self.completed
        positions, snapshot = completed.positions(checkpoint_id), completed.directory(checkpoint_id)
        self._notifications.completed_to(execution, checkpoint_id, positions, snapshot)

    def manifest_failed(self, event: contract.ManifestFailed) -> TaskFailure | None:
        """The write is repeated, the snapshot is aborted, or another leader has won."""
        obstacle = self._finalization.failed(event)
        if obstacle is None:
            return None
        failure = self._abort(obstacle)
        if event.fenced:
            message = f"another leader owns this job: {event.reason}"
            return TaskFailure(kind="Fenced", message=message, recoverable=False)
        return failure

    # --- failing one ------------------------------------------------------------------------------

    def _abort(self, obstacle: Obstacle) -> TaskFailure | None:
        """Gives up a snapshot, of a drain both. A savepoint that fails here, not in a task, does not count as
        a failure of the job."""
        pending, reason, detail = obstacle.pending, obstacle.reason, obstacle.detail
        reached_tasks = pending.phase in (CheckpointPhase.TRIGGERED, CheckpointPhase.FINALIZING)
        requested = pending.requested
        self._pendings.drop_both(
            pending, reason, detail, discard=not obstacle.may_exist, named=obstacle.named
        )
        text = f"{requested.kind.title} {requested.checkpoint_id} failed: {reason.value} ({detail})"
        self._queue.refuse(requested.request, text)
        is_savepoint = requested.kind is SnapshotKind.SAVEPOINT and not obstacle.by_task
        if requested.kind.is_synchronous:
            if reached_tasks and self._active:  # tasks stand still behind its barrier
                return TaskFailure(kind=reason.name, message=text)
        elif self._failures.failed(requested.checkpoint_id, reason, savepoint=is_savepoint):
            more = "that is more than execution.checkpointing.tolerable-failed-checkpoints"
            return TaskFailure(kind=reason.name, message=f"{text}; {more}")
        return self._go_on()

    def _answer_error(self, request: contract.SnapshotRequest, error: str) -> None:
        self._notifications.answer(request, error=error)

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

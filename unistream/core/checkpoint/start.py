"""How a snapshot begins, from its request to the triggers of its tasks. See `checkpoint` for the phases.

    open ──► PREPARING ── directory_ready ──► DELIVERING ── splits_delivered ──► TRIGGERED ── trigger_settled

From `directory_ready` until all triggers are settled no splits are assigned, so that each split is in exactly
one place of the snapshot (FLINK-21996).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from unistream.base.ids import CheckpointId
from unistream.core import contract
from unistream.core.checkpoint.notifications import Notifications
from unistream.core.checkpoint.pending import CheckpointPhase, PendingCheckpoint
from unistream.core.checkpoint.pendings import PendingSnapshots
from unistream.core.checkpoint.plan import CheckpointPlan, NotAllRunning, plan_checkpoint
from unistream.core.checkpoint.sources import Sources
from unistream.core.execution import JobRun
from unistream.model.failure_reason import FailureReason
from unistream.model.snapshot_kind import SnapshotKind


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a snapshot has to be aborted. `named` False: it has and will get no directory. `may_exist`: on the
    storage, so that nothing of it may be deleted. `by_task`: a task declined."""

    pending: PendingCheckpoint
    reason: FailureReason
    detail: str
    named: bool = True
    may_exist: bool = False
    by_task: bool = False


class SnapshotStart:
    """The steps; each returns what is in the way, if something is."""

    def __init__(
        self,
        pendings: PendingSnapshots,
        notifications: Notifications,
        run: JobRun,
        sources: Sources,
        settings: contract.JobSettings,
    ) -> None:
        self._unaligned = settings.unaligned_checkpoints
        self._pendings = pendings
        self._after_finish = settings.checkpoints_after_finish
        self.rebind(notifications, run, sources)

    def rebind(self, notifications: Notifications, run: JobRun, sources: Sources) -> None:
        """The job goes on with another graph."""
        self._notifications, self._run, self._sources = notifications, run, sources

    def plan(self) -> CheckpointPlan | NotAllRunning:
        """Who would take part in a snapshot now."""
        return plan_checkpoint(self._run.plan, self._run.executions.states, after_finish=self._after_finish)

    def impediment(self) -> FailureReason | None:
        """Why no snapshot can be taken just now."""
        if isinstance(self.plan(), NotAllRunning):
            return FailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING
        if self._run.stored and any(self._run.stored.is_in_the_way(e) for e in self._run.executions):
            return FailureReason.BLOCKING_OUTPUT_EXIST
        return None

    def open(self, request: contract.SnapshotRequest) -> None:
        """Begins the snapshot; a drain begins two."""
        if request.kind is not SnapshotKind.TERMINATE:
            self._pendings.open(request)
            return
        half = self._pendings.open(replace(request, kind=SnapshotKind.SAVEPOINT, id=""))
        half.partner = self._pendings.open(request)
        half.partner.partner = half

    def directory_ready(self, event: contract.DirectoryReady) -> Obstacle | None:
        """It has a place: its splits and barriers may go out, with those of its partner."""
        pending = self._pendings.within(event.checkpoint_id, CheckpointPhase.PREPARING)
        if pending is None or pending.directory is not None:
            self._pendings.came_too_late(event.checkpoint_id, event.directory)
            return None
        pending.directory = event.directory
        pending.timestamp_ms = event.timestamp_ms
        both = [one for one in (pending.partner, pending) if one is not None]
        if any(one.directory is None for one in both):
            return None
        for one in both:
            one.phase = CheckpointPhase.DELIVERING
            self._pendings.triggered(one)
        self._sources.hold()
        return self.splits_delivered()

    def directory_failed(self, checkpoint_id: CheckpointId, reason: str) -> Obstacle | None:
        """It gets none."""
        self._pendings.came_too_late(checkpoint_id, None)
        pending = self._pendings.within(checkpoint_id, CheckpointPhase.PREPARING)
        if pending is None:
            return None
        return Obstacle(pending, FailureReason.IO_EXCEPTION, reason, named=False)

    def splits_delivered(self) -> Obstacle | None:
        """An assignment was acknowledged: if it was the last one in progress, the tasks are triggered."""
        starting = [pending for pending in self._pendings if pending.phase is CheckpointPhase.DELIVERING]
        if not starting or not self._sources.quiet:
            return None
        last = starting[-1]  # of a drain: the terminal one, whose trigger names its partner
        plan = self.plan()
        if isinstance(plan, NotAllRunning):
            late = self._run.executions[plan.tasks[0]].title
            return Obstacle(last, FailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING, late)
        for pending in starting:
            request = pending.request
            aligned = request.aligned or request.kind is not SnapshotKind.CHECKPOINT or not self._unaligned
            states = self._sources.snapshot(pending.checkpoint_id, aligned=aligned)
            pending.begin(plan, states, self._run.executions)
        self._notifications.trigger(last, plan.to_trigger)
        if not last.triggers:
            self._sources.release()
        return None

    def trigger_settled(self, token: int, refusal: str | None, *, ended: bool = False) -> Obstacle | None:
        """A `TriggerCheckpoint` was acknowledged, or (`refusal`) not. `ended`: its worker says that the task
        runs no more; how it has ended is on its way, and decides what becomes of the snapshot."""
        pending = next((p for p in self._pendings if token in p.triggers), None)
        if pending is None:
            return None
        pending.triggers.discard(token)
        if not pending.triggers:
            self._sources.release()
        if refusal is None or ended or pending.phase is not CheckpointPhase.TRIGGERED:
            return None
        return Obstacle(pending, FailureReason.TRIGGER_CHECKPOINT_FAILURE, refusal)

"""A task's part of each checkpoint: snapshot, background write, acknowledgement, notifications.

    begin -> prepare (head -> tail) -> barrier out -> state by reference (tail -> head)
          -> [pool thread] write files ────────┐
          -> rows in flight are gathered        ├─> acknowledge   (or decline; the task goes on)
          -> [pool thread] write them ─────────┘

Everything except the writes, and the acknowledgement after the last of them, runs on the task's thread.
Rows in flight are complete when the inputs have all barriers (`on_inputs_gathered`; unaligned snapshots
only) and the task's own barrier has left all outputs, or has overtaken the rows before it there: at once,
or at its timeout (`check_outputs`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from msgspec import structs

from unistream.base.config import INCREMENTAL_CHECKPOINTS, Configuration
from unistream.base.errors import Transient
from unistream.base.ids import AttemptId, CheckpointId, LeaderEpoch, LineageId, OperatorUid
from unistream.core.task import (
    CheckpointNotification,
    NotifyAborted,
    NotifyComplete,
    StopFailed,
    TaskCheckpoints,
)
from unistream.model.deployment import TaskDeployment
from unistream.model.elements import AlignmentType, CancelCheckpointMarker, CheckpointBarrier
from unistream.model.failure_reason import FailureReason
from unistream.model.in_flight import InFlightHandle
from unistream.model.keyed_snapshot import Sharing
from unistream.model.messages import (
    CheckpointAborted,
    CheckpointAcked,
    CheckpointCompleted,
    CheckpointDeclined,
)
from unistream.model.positions import SourcePositions
from unistream.model.snapshot import OperatorSnapshot, TaskSnapshot
from unistream.model.snapshot_kind import SavepointFormat
from unistream.port.operator import CommitPermit
from unistream.state.common import UnfitState, write_task_snapshot
from unistream.worker.exchange import AlignmentFigures, Gathered, Outputs, Run, write_in_flight
from unistream.worker.task.chain import OperatorChain
from unistream.worker.task.environment import TaskEnvironment
from unistream.worker.task.mailbox import Mailbox, SnapshotNotStored, SnapshotStored

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredState:
    """`new_bytes`: written for this snapshot; `async_ms`: duration of the write."""

    snapshot: TaskSnapshot
    state_bytes: int
    new_bytes: int
    async_ms: int


@dataclass(frozen=True, slots=True)
class _StoredRows:
    """`handle`: None if no rows were in flight."""

    handle: InFlightHandle | None = None
    async_ms: int = 0


@dataclass(slots=True)
class _InProgress:
    """A snapshot that is not acknowledged yet.

    Attributes:
        inputs_open, outputs_open: Rows may still be added to `gathered` on that side.
        state, rows: Set once stored.
    """

    barrier: CheckpointBarrier
    sync_ms: int
    figures: AlignmentFigures
    inputs_open: bool
    outputs_open: bool
    gathered: Gathered = field(default_factory=Gathered)
    state: _StoredState | None = None
    rows: _StoredRows | None = None


class TaskSnapshots:
    """Checkpoints of one attempt."""

    def __init__(
        self,
        deployment: TaskDeployment,
        chain: OperatorChain,
        environment: TaskEnvironment,
        mailbox: Mailbox,
        outputs: Outputs,
    ) -> None:
        restored = deployment.restore.checkpoint_id if deployment.restore else None
        self._attempt: AttemptId = deployment.attempt
        self._lineage: LineageId = deployment.lineage
        self._epoch: LeaderEpoch = deployment.epoch
        self._chain = chain
        self._environment = environment
        self._mailbox = mailbox
        self._outputs = outputs
        self._machine = TaskCheckpoints(restored)
        self._incremental = Configuration(deployment.config).get(INCREMENTAL_CHECKPOINTS)
        self._storing: dict[CheckpointId, _InProgress] = {}
        self._lock = threading.Lock()  # the thread that stores the last part acknowledges

    @property
    def is_storing(self) -> bool:
        """A background write has not finished."""
        return bool(self._storing)

    @property
    def is_stopping(self) -> bool:
        """A stop-with-savepoint has begun."""
        return self._machine.stopping is not None

    @property
    def final_completed(self) -> bool:
        """The checkpoint that the task waits for after its end of data has completed."""
        return self._machine.final_completed

    def on_end_of_data(self) -> None:
        self._machine.on_end_of_data()

    def begin(self, barrier: CheckpointBarrier) -> bool:
        """False: it is late, repeated or was aborted; in the last case consumers get a cancel marker."""
        aborted = self._machine.is_aborted(barrier.checkpoint_id)
        if self._machine.begin(barrier.checkpoint_id, barrier.kind):
            return True
        if aborted:
            self._outputs.broadcast(CancelCheckpointMarker(barrier.checkpoint_id))
        return False

    def take(
        self, barrier: CheckpointBarrier, *, finished: bool, figures: AlignmentFigures, persists: bool
    ) -> None:
        """The synchronous part, after `begin`.

        `finished`: EndOfData(drain) was sent before this barrier. `persists`: rows in flight of the inputs
        belong to it; `on_inputs_gathered` follows.
        """
        started_ms = self._environment.clock.monotonic_ms()
        checkpoint_id = barrier.checkpoint_id
        self._chain.prepare_snapshot_pre_barrier(checkpoint_id)
        overtaken = self._outputs.send_barrier(barrier)
        snapshots = self._chain.snapshot_state(checkpoint_id)
        self._environment.crash_point("snapshot.sync_done")
        progress = _InProgress(
            barrier,
            self._environment.clock.monotonic_ms() - started_ms,
            figures,
            inputs_open=persists,
            outputs_open=self._outputs.holds_barrier(checkpoint_id),
        )
        progress.gathered.outputs += overtaken
        self._storing[checkpoint_id] = progress
        self._environment.executor.submit(self._store, barrier, snapshots, finished)
        self._write_if_whole(progress)

    # --- rows in flight ---------------------------------------------------------------------------

    def on_inputs_gathered(
        self, checkpoint_id: CheckpointId, restored: list[Run], inputs: list[Run], figures: AlignmentFigures
    ) -> None:
        """All barriers of an unaligned snapshot have arrived."""
        progress = self._storing.get(checkpoint_id)
        if progress is None or not progress.inputs_open:
            return
        progress.inputs_open = False
        progress.figures = figures
        progress.gathered.restored += restored
        progress.gathered.inputs += inputs
        self._write_if_whole(progress)

    def check_outputs(self) -> bool:
        """Handles barriers that have left the outputs, or time out and overtake. True: there was one."""
        changed = False
        for progress in list(self._storing.values()):
            if not progress.outputs_open:
                continue
            checkpoint_id = progress.barrier.checkpoint_id
            if self._environment.clock.wall_ms() >= progress.barrier.deadline_ms:
                progress.gathered.outputs += self._outputs.overtake(checkpoint_id)
            elif self._outputs.holds_barrier(checkpoint_id):
                continue
            changed, progress.outputs_open = True, False
            self._write_if_whole(progress)
        return changed

    @property
    def deadline_monotonic_ms(self) -> int | None:
        """When a barrier in an output times out."""
        waiting = [p.barrier.deadline_ms for p in list(self._storing.values()) if p.outputs_open]
        if not waiting:
            return None
        clock = self._environment.clock
        return clock.monotonic_ms() + max(0, min(waiting) - clock.wall_ms())

    def _write_if_whole(self, progress: _InProgress) -> None:
        if progress.inputs_open or progress.outputs_open:
            return
        if progress.gathered.is_empty:
            self._stored(progress.barrier.checkpoint_id, _StoredRows())
            return
        self._environment.executor.submit(self._store_in_flight, progress.barrier, progress.gathered)

    def _store_in_flight(self, barrier: CheckpointBarrier, gathered: Gathered) -> None:
        """Stores the rows in flight, on a pool thread."""
        clock = self._environment.clock
        started_ms = clock.monotonic_ms()
        try:
            handle = write_in_flight(gathered, self._environment.state_writer(barrier.directory))
        except BaseException as error:  # the task declines, whatever it is
            self._mailbox.post(SnapshotNotStored(checkpoint_id=barrier.checkpoint_id, error=error))
            return
        self._stored(barrier.checkpoint_id, _StoredRows(handle, clock.monotonic_ms() - started_ms))

    # --- state ------------------------------------------------------------------------------------

    def _store(
        self, barrier: CheckpointBarrier, snapshots: dict[OperatorUid, OperatorSnapshot], finished: bool
    ) -> None:
        """Stores the state of the operators, on a pool thread."""
        clock = self._environment.clock
        started_ms = clock.monotonic_ms()
        try:
            writer = self._environment.state_writer(barrier.directory)
            snapshot, state_bytes = write_task_snapshot(
                snapshots,
                writer,
                finished=finished,
                native=self._keeps_files(barrier),
                sharing=_sharing(barrier),
            )
            self._environment.crash_point("snapshot.uploaded")
        except BaseException as error:  # users' classes write values
            self._mailbox.post(SnapshotNotStored(checkpoint_id=barrier.checkpoint_id, error=error))
            return
        state = _StoredState(
            snapshot=snapshot,
            state_bytes=state_bytes,
            new_bytes=writer.bytes_written,
            async_ms=clock.monotonic_ms() - started_ms,
        )
        self._stored(barrier.checkpoint_id, state)

    def _keeps_files(self, barrier: CheckpointBarrier) -> bool:
        """A backend's own files, if it has any, are stored instead of tables."""
        is_savepoint = barrier.kind.is_savepoint
        return barrier.format is SavepointFormat.NATIVE if is_savepoint else self._incremental

    def _stored(self, checkpoint_id: CheckpointId, part: _StoredState | _StoredRows) -> None:
        """Records a stored part, unless the snapshot was aborted meanwhile. The last part acknowledges it at
        once, as in Flink: the task may be processing a long batch."""
        with self._lock:
            progress = self._storing.get(checkpoint_id)
            if progress is None:
                return
            if isinstance(part, _StoredState):
                progress.state = part
            else:
                progress.rows = part
            if progress.state is None or progress.rows is None:
                return
            self._acknowledge(progress, progress.state, progress.rows)
            del self._storing[checkpoint_id]
        self._mailbox.post(SnapshotStored(checkpoint_id=checkpoint_id))

    def _acknowledge(self, progress: _InProgress, state: _StoredState, rows: _StoredRows) -> None:
        persisted = 0 if rows.handle is None else rows.handle.file.size
        self._environment.report(
            CheckpointAcked(
                attempt=self._attempt,
                checkpoint_id=progress.barrier.checkpoint_id,
                snapshot=structs.replace(state.snapshot, in_flight=rows.handle),
                sync_ms=progress.sync_ms,
                async_ms=max(state.async_ms, rows.async_ms),  # they run in parallel
                alignment_ms=progress.figures.alignment_ms,
                state_bytes=state.state_bytes + persisted,
                start_delay_ms=progress.figures.start_delay_ms,
                processed_bytes=progress.figures.processed_bytes,
                persisted_bytes=persisted,
                new_bytes=state.new_bytes + persisted,
                unaligned=progress.barrier.alignment is AlignmentType.UNALIGNED or rows.handle is not None,
            )
        )
        self._environment.crash_point("ack.sent")

    def on_not_stored(self, mail: SnapshotNotStored) -> None:
        """Declines; the task continues, unless the job was to stop with this savepoint, or a user's
        function has state that cannot be stored at all."""
        if isinstance(mail.error, UnfitState):
            raise self._chain.located(mail.error.uid, f"storing checkpoint {mail.checkpoint_id}", mail.error)
        if not self._forget(mail.checkpoint_id):
            return
        _log.warning(
            "event=snapshot_not_stored attempt=%s checkpoint=%s",
            self._attempt,
            mail.checkpoint_id,
            exc_info=mail.error,
        )
        why = f"{type(mail.error).__name__}: {mail.error}"
        self.decline(mail.checkpoint_id, f"{FailureReason.CHECKPOINT_ASYNC_EXCEPTION.name}: {why}")

    def decline(self, checkpoint_id: CheckpointId, reason: str) -> None:
        """Reports to the master that this task cannot complete its part of `checkpoint_id`."""
        self._forget(checkpoint_id)
        for older in [c for c, p in list(self._storing.items()) if c < checkpoint_id and p.inputs_open]:
            self._forget(older)  # its missing barriers would be ignored
        self._environment.report(
            CheckpointDeclined(attempt=self._attempt, checkpoint_id=checkpoint_id, reason=reason)
        )
        self._notify(self._machine.on_declined(checkpoint_id), self._epoch)

    def _forget(self, checkpoint_id: CheckpointId) -> bool:
        """False: it was already acknowledged, or was not begun."""
        with self._lock:
            return self._storing.pop(checkpoint_id, None) is not None

    def on_completed(self, mail: CheckpointCompleted) -> None:
        """Notifies the operators, which commit."""
        notifications = self._machine.on_completed(mail.checkpoint_id)
        self._notify(notifications, mail.epoch, mail.positions, mail.snapshot)

    def on_aborted(self, mail: CheckpointAborted) -> None:
        """Aborts it; a completed checkpoint whose notification was missed comes first."""
        self._forget(mail.checkpoint_id)
        self._notify(self._machine.on_aborted(mail.checkpoint_id, mail.latest_completed), self._epoch)

    def _notify(
        self,
        notifications: list[CheckpointNotification],
        epoch: LeaderEpoch,
        positions: Mapping[OperatorUid, tuple[SourcePositions, ...]] = MappingProxyType({}),
        snapshot: str = "",
    ) -> None:
        for notification in notifications:
            match notification:
                case NotifyComplete(checkpoint_id):
                    self._environment.crash_point("sink.before_commit")
                    permit = CommitPermit(
                        lineage=self._lineage, checkpoint_id=checkpoint_id, epoch=epoch, snapshot=snapshot
                    )
                    self._chain.notify_checkpoint_complete(permit, positions)
                    self._environment.crash_point("sink.committed")
                case NotifyAborted(checkpoint_id):
                    self._chain.notify_checkpoint_aborted(checkpoint_id)
                case StopFailed(checkpoint_id):
                    raise Transient(
                        f"savepoint {checkpoint_id}, with which the job should have stopped, failed; "
                        "the task has stopped reading and must be restored"
                    )


def _sharing(barrier: CheckpointBarrier) -> Sharing:
    if barrier.kind.is_savepoint:
        return Sharing.NO_SHARING
    return Sharing.FORWARD if barrier.full else Sharing.FORWARD_BACKWARD

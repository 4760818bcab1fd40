"""A task's part of each checkpoint: snapshot, background write, acknowledgement, notices.

    begin -> prepare (head -> tail) -> barrier out -> state by reference (tail -> head)
          -> [pool thread] write files -> mail -> acknowledge   (or decline; the task goes on)

Everything but the write happens on the task's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from unistream.base.errors import Transient
from unistream.base.ids import AttemptId, CheckpointId, LeaderEpoch, LineageId, OperatorUid
from unistream.core.task_commit import Notice, NotifyAborted, NotifyComplete, StopFailed, TaskCheckpoints
from unistream.model.elements import CancelCheckpointMarker, CheckpointBarrier, Event
from unistream.model.messages import (
    CheckpointAborted,
    CheckpointAcked,
    CheckpointCompleted,
    CheckpointDeclined,
    TaskDeployment,
)
from unistream.model.snapshot import OperatorSnapshot
from unistream.port.operator import CommitPermit
from unistream.state.snapshot_writer import write_task_snapshot
from unistream.worker.finished_chain import TaskChain
from unistream.worker.mailbox import Mailbox, SnapshotNotStored, SnapshotStored
from unistream.worker.task_environment import TaskEnvironment

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _InProgress:
    sync_ms: int
    alignment_ms: int


class TaskSnapshots:
    """Checkpoints of one attempt.

    Args:
        broadcast: Sends an event to all outputs of the task.
    """

    def __init__(
        self,
        deployment: TaskDeployment,
        chain: TaskChain,
        environment: TaskEnvironment,
        mailbox: Mailbox,
        broadcast: Callable[[Event], None],
    ) -> None:
        restored = deployment.restore.checkpoint_id if deployment.restore else None
        self._attempt: AttemptId = deployment.attempt
        self._lineage: LineageId = deployment.lineage
        self._epoch: LeaderEpoch = deployment.epoch
        self._chain = chain
        self._environment = environment
        self._mailbox = mailbox
        self._broadcast = broadcast
        self._machine = TaskCheckpoints(restored)
        self._storing: dict[CheckpointId, _InProgress] = {}

    @property
    def is_storing(self) -> bool:
        """A background part has not come back yet."""
        return bool(self._storing)

    @property
    def is_stopping(self) -> bool:
        """A stop-with-savepoint has begun."""
        return self._machine.stopping is not None

    @property
    def final_completed(self) -> bool:
        """The checkpoint completed that the task waited for after its end of data."""
        return self._machine.final_completed

    def on_end_of_data(self) -> None:
        self._machine.on_end_of_data()

    def begin(self, barrier: CheckpointBarrier) -> bool:
        """False: it is late, repeated or was aborted; in the last case consumers are told."""
        aborted = self._machine.is_aborted(barrier.checkpoint_id)
        if self._machine.begin(barrier.checkpoint_id, barrier.kind):
            return True
        if aborted:
            self._broadcast(CancelCheckpointMarker(barrier.checkpoint_id))
        return False

    def take(self, barrier: CheckpointBarrier, *, finished: bool, alignment_ms: int) -> None:
        """The synchronous part, after `begin`.

        `finished`: EndOfData(drain) was sent before this barrier.
        """
        started_ms = self._environment.clock.monotonic_ms()
        checkpoint_id = barrier.checkpoint_id
        self._chain.prepare_snapshot_pre_barrier(checkpoint_id)
        self._broadcast(barrier)
        snapshots = self._chain.snapshot_state(checkpoint_id)
        self._environment.crash_point("snapshot.sync_done")
        sync_ms = self._environment.clock.monotonic_ms() - started_ms
        self._storing[checkpoint_id] = _InProgress(sync_ms, alignment_ms)
        self._environment.executor.submit(self._store, barrier, snapshots, finished)

    def _store(
        self, barrier: CheckpointBarrier, snapshots: dict[OperatorUid, OperatorSnapshot], finished: bool
    ) -> None:
        """On a pool thread; its result comes back as mail."""
        clock = self._environment.clock
        started_ms = clock.monotonic_ms()
        try:
            writer = self._environment.state_writer(barrier.directory)
            snapshot, state_bytes = write_task_snapshot(snapshots, writer, finished=finished)
            self._environment.crash_point("snapshot.uploaded")
        except Exception as error:
            self._mailbox.post(SnapshotNotStored(checkpoint_id=barrier.checkpoint_id, error=error))
            return
        self._mailbox.post(
            SnapshotStored(
                checkpoint_id=barrier.checkpoint_id,
                snapshot=snapshot,
                state_bytes=state_bytes,
                async_ms=clock.monotonic_ms() - started_ms,
            )
        )

    def on_stored(self, mail: SnapshotStored) -> None:
        """Acknowledges, unless it was aborted meanwhile."""
        progress = self._storing.pop(mail.checkpoint_id, None)
        if progress is None:
            return
        self._environment.report(
            CheckpointAcked(
                attempt=self._attempt,
                checkpoint_id=mail.checkpoint_id,
                snapshot=mail.snapshot,
                sync_ms=progress.sync_ms,
                async_ms=mail.async_ms,
                alignment_ms=progress.alignment_ms,
                state_bytes=mail.state_bytes,
            )
        )
        self._environment.crash_point("ack.sent")

    def on_not_stored(self, mail: SnapshotNotStored) -> None:
        """Declines; the task goes on, unless the job was to stop with this savepoint."""
        if self._storing.pop(mail.checkpoint_id, None) is None:
            return
        _log.warning(
            "event=snapshot_not_stored attempt=%s checkpoint=%s",
            self._attempt,
            mail.checkpoint_id,
            exc_info=mail.error,
        )
        self.decline(mail.checkpoint_id, f"{type(mail.error).__name__}: {mail.error}")

    def decline(self, checkpoint_id: CheckpointId, reason: str) -> None:
        """Tells the master that this task has no part in `checkpoint_id`."""
        self._environment.report(
            CheckpointDeclined(attempt=self._attempt, checkpoint_id=checkpoint_id, reason=reason)
        )
        self._obey(self._machine.on_declined(checkpoint_id), self._epoch)

    def on_completed(self, mail: CheckpointCompleted) -> None:
        """Commits what is durable now."""
        self._obey(self._machine.on_completed(mail.checkpoint_id), mail.epoch)

    def on_aborted(self, mail: CheckpointAborted) -> None:
        """Forgets it, after a completion that was missed."""
        self._storing.pop(mail.checkpoint_id, None)
        self._obey(self._machine.on_aborted(mail.checkpoint_id, mail.latest_completed), self._epoch)

    def _obey(self, notices: list[Notice], epoch: LeaderEpoch) -> None:
        for notice in notices:
            match notice:
                case NotifyComplete(checkpoint_id):
                    self._environment.crash_point("sink.before_commit")
                    self._chain.notify_checkpoint_complete(
                        CommitPermit(lineage=self._lineage, checkpoint_id=checkpoint_id, epoch=epoch)
                    )
                    self._environment.crash_point("sink.committed")
                case NotifyAborted(checkpoint_id):
                    self._chain.notify_checkpoint_aborted(checkpoint_id)
                case StopFailed(checkpoint_id):
                    raise Transient(
                        f"savepoint {checkpoint_id}, with which the job should have stopped, failed; "
                        "the task has stopped reading and must be restored"
                    )

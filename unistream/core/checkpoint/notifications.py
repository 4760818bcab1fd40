"""Messages to tasks about a snapshot, and the answers to requests for one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from unistream.base.ids import CheckpointId, LeaderEpoch, OperatorUid, SubtaskId
from unistream.core.checkpoint.pending import PendingCheckpoint
from unistream.core.contract import AnswerRequest, CommandOutbox, SnapshotRequest
from unistream.core.execution import Execution, JobRun
from unistream.model.execution_state import ExecutionState
from unistream.model.messages import (
    CheckpointAborted,
    CheckpointCompleted,
    SnapshotPlace,
    TriggerCheckpoint,
)
from unistream.model.plan import TaskManagerLocation
from unistream.model.positions import SourcePositions

Positions: TypeAlias = tuple[SourcePositions, ...]


class Notifications:
    """Sends for the coordinator; decides nothing."""

    def __init__(self, outbox: CommandOutbox, run: JobRun, epoch: LeaderEpoch) -> None:
        self._outbox = outbox
        self._executions = run.executions
        self._operators = {
            vertex.id: tuple(operator.uid for operator in vertex.operators) for vertex in run.graph.vertices
        }
        self._epoch = epoch

    def trigger(self, pending: PendingCheckpoint, tasks: tuple[SubtaskId, ...]) -> None:
        """Starts the barriers; the tokens are kept in `pending.triggers`."""
        for subtask in tasks:
            execution = self._executions[subtask]
            half = pending.partner
            message = TriggerCheckpoint(
                attempt=execution.attempt,
                checkpoint_id=pending.checkpoint_id,
                timestamp_ms=pending.timestamp_ms,
                kind=pending.kind,
                directory=pending.directory or "",
                before=None
                if half is None
                else SnapshotPlace(checkpoint_id=half.checkpoint_id, directory=half.directory or ""),
                format=pending.request.format,
                full=pending.request.full,
                aligned=pending.request.aligned,
            )
            token = self._outbox.send_tracked(_place(execution).task_manager, message)
            pending.triggers.add(token)

    def completed(self, pending: PendingCheckpoint) -> None:
        for execution in self._still_running(pending):
            self.completed_to(
                execution, pending.checkpoint_id, pending.written.positions, pending.resumable_from
            )

    def completed_to(
        self,
        execution: Execution,
        checkpoint_id: CheckpointId,
        positions: Mapping[OperatorUid, Positions],
        snapshot: str,
    ) -> None:
        """Notifies one task; tracked, because a task may wait for it before it ends. `positions`: of all
        committers (`Manifest.positions`); `snapshot`: from which a job can go on."""
        here = self._operators[execution.attempt.subtask.vertex] if positions else ()
        message = CheckpointCompleted(
            attempt=execution.attempt,
            checkpoint_id=checkpoint_id,
            epoch=self._epoch,
            positions={uid: positions[uid] for uid in here if uid in positions},
            snapshot=snapshot,
        )
        self._outbox.send_tracked(_place(execution).task_manager, message)

    def aborted(self, pending: PendingCheckpoint, latest_completed: CheckpointId | None) -> None:
        for execution in self._still_running(pending):
            message = CheckpointAborted(
                attempt=execution.attempt,
                checkpoint_id=pending.checkpoint_id,
                latest_completed=latest_completed,
            )
            self._outbox.send(_place(execution).task_manager, message)

    def _still_running(self, pending: PendingCheckpoint) -> Iterator[Execution]:
        for execution in self._executions:
            if execution.attempt in pending.participants and execution.state is ExecutionState.RUNNING:
                yield execution

    def answer(self, request: SnapshotRequest, *, path: str | None = None, error: str | None = None) -> None:
        assert (path is None) != (error is None), "an answer is a path or an error"
        if request.on_done is not None:
            request.on_done(path, error)
        else:
            self._outbox.add(AnswerRequest(request=request.id, path=path, error=error))


def _place(execution: Execution) -> TaskManagerLocation:
    assert execution.place is not None, "a running task has a place"
    return execution.place

"""What a job's messages to its workers came to: each was acted on, refused, or nobody answered. Pure.

A refused message was certainly not acted on. One that nobody answered may have been: it is repeated where
that does no harm, else its task is suspected (`suspects`) until its worker is lost, or lives on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from unistream.base.ids import AttemptId, CheckpointId
from unistream.core.contract import Delivered, Undelivered
from unistream.core.execution import Execution, ExecutionState
from unistream.core.job.parts import JobParts
from unistream.core.job.releases import Releases
from unistream.core.job.suspects import Suspect, Suspects
from unistream.model.messages import (
    AssignSplits,
    CancelTask,
    CheckpointCompleted,
    DeployTask,
    ReleasePartitions,
    TaskFailure,
    TriggerCheckpoint,
)

SEND_TRIES: Final = 3  # of a message that may be repeated; after that only the worker's heartbeat can tell

ALIVE: Final = (ExecutionState.DEPLOYING, ExecutionState.INITIALIZING, ExecutionState.RUNNING)


class Deliveries:
    """Those of one job.

    Args:
        fail: What to do when a task cannot go on without a message.

    Attributes:
        releases: Of stored results.
    """

    def __init__(self, parts: JobParts, fail: Callable[[TaskFailure, Execution | None], None]) -> None:
        self._parts = parts
        self._fail = fail
        self._tries: dict[tuple[AttemptId, CheckpointId | None], int] = {}
        self._suspects = Suspects(parts.outbox)
        self.releases = Releases(parts.outbox)

    def finished(self, attempt: AttemptId) -> TaskFailure | None:
        """It says that it has ended well. What it fails by: a message that it needed may not have come."""
        return self._suspects.ended(attempt)

    def suspicion_over(self, token: int) -> None:
        """The worker of that message lives."""
        if (failed := self._suspects.over(token, self._parts.executions)) is not None:
            self._fail(*failed)

    def delivered(self, event: Delivered) -> TaskFailure | None:
        send = self._parts.outbox.settle(event)
        match send.message if send is not None else None:
            case TriggerCheckpoint():
                return self._parts.coordinator.trigger_settled(event.token, None)
            case AssignSplits():
                self._parts.sources.delivered(event.token)
                return self._parts.coordinator.splits_delivered()
        return None

    def undelivered(self, event: Undelivered) -> TaskFailure | None:
        """A message did not arrive, or its worker refused it: the failure of the job that follows, if any."""
        send = self._parts.outbox.settle(event)
        if send is None:
            return None
        match send.message:
            case TriggerCheckpoint():
                return self._parts.coordinator.trigger_settled(event.token, event.reason, ended=event.refused)
            case DeployTask(deployment=deployment):
                self._order_lost(deployment.attempt, event, (ExecutionState.DEPLOYING,))
            case AssignSplits(attempt=attempt):
                execution = self._parts.executions.find(attempt)
                if execution is not None and execution.state is ExecutionState.FINISHED:
                    self._parts.sources.delivered(event.token)  # else no snapshot would ever begin
                    return self._parts.coordinator.splits_delivered()
                self._order_lost(attempt, event, ALIVE)
            case CancelTask(attempt=attempt):
                self._cancel_lost(attempt, event)
            case CheckpointCompleted(attempt=attempt, checkpoint_id=checkpoint_id):
                self._completion_lost(attempt, checkpoint_id, event)
            case ReleasePartitions():
                self.releases.undelivered(send, event)
        return None

    def _order_lost(self, attempt: AttemptId, event: Undelivered, states: tuple[ExecutionState, ...]) -> None:
        """Without it the task cannot go on. A refused deployment certainly does not run; what is refused
        later is so because the task has ended there, and what it ended by is on its way."""
        execution = self._parts.executions.find(attempt)
        if execution is None or execution.state not in states:
            return
        text = f"{execution.vertex_name} #{attempt.index} could not be reached: {event.reason}"
        failure = TaskFailure(kind="Undelivered", message=text)
        if event.refused and execution.state is ExecutionState.DEPLOYING:
            self._parts.slots.pool.distrust(attempt.subtask)
            self._parts.executions.move(execution, ExecutionState.FAILED, event.reason)
            self._fail(failure, execution)
        else:
            self._suspects.add(event.token, Suspect(attempt, failure, states, needed=states is ALIVE))

    def _cancel_lost(self, attempt: AttemptId, event: Undelivered) -> None:
        """A worker that refuses does not have the task; one that is silent is asked again, a few times."""
        execution = self._parts.executions.find(attempt)
        if execution is None or execution.state is not ExecutionState.CANCELING:
            return
        if event.refused:
            self._parts.executions.move(execution, ExecutionState.CANCELED, event.reason)
        elif self._may_repeat(attempt, None):
            self._parts.scheduler.send_cancel(execution)

    def _completion_lost(self, attempt: AttemptId, checkpoint_id: CheckpointId, event: Undelivered) -> None:
        """A task may wait for this word to end, so it is said again; and then the task is given up."""
        execution = self._parts.executions.find(attempt)
        if execution is None or execution.state is not ExecutionState.RUNNING or event.refused:
            return
        if self._may_repeat(attempt, checkpoint_id):
            self._parts.coordinator.announce(execution, checkpoint_id)
            return
        text = f"{execution.vertex_name} #{attempt.index} could not be told of checkpoint {checkpoint_id}"
        failure = TaskFailure(kind="Undelivered", message=f"{text}: {event.reason}")
        self._suspects.add(event.token, Suspect(attempt, failure, (ExecutionState.RUNNING,)))

    def _may_repeat(self, attempt: AttemptId, checkpoint_id: CheckpointId | None) -> bool:
        key = (attempt, checkpoint_id)
        self._tries[key] = self._tries.get(key, 1) + 1
        return self._tries[key] <= SEND_TRIES

"""Outcomes of a job's messages to its workers: acted on, refused, or unknown because no answer came. Pure.

A refused message was certainly not acted on. One without an answer may have been: it is repeated where that
does no harm; otherwise its task is suspected. A broken connection is often the first sign of a worker's end,
so the failure of a suspected task is delayed by `LOSS_GRACE_MS`: if the worker is lost, that is reported
meanwhile and becomes the root cause. The same holds for a task that had ended when an order arrived: its own
report is on its way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from unistream.base.ids import AttemptId, CheckpointId, TaskManagerId
from unistream.core.contract import CommandOutbox, Delivered, Send, Timer, TimerKind, Undelivered
from unistream.core.execution import Execution
from unistream.core.job.parts import JobParts
from unistream.model import messages as msg
from unistream.model.execution_state import ExecutionState

SEND_TRIES: Final = 3  # of a message that may be repeated; after that only the heartbeat decides
LOSS_GRACE_MS: Final = 2_000  # a host detects the end of one of its processes within a second
RELEASE_TRIES: Final = 10  # a job is not notified of the end of a worker where it has no slot

ALIVE: Final = (ExecutionState.DEPLOYING, ExecutionState.INITIALIZING, ExecutionState.RUNNING)


@dataclass(frozen=True, slots=True)
class _Suspect:
    """`failure` of the attempt, if it is in one of `states` after the grace period: a task that was to be
    deployed and runs has received the message after all.

    `needed`: without the message it cannot have done all its work, even if it reports FINISHED meanwhile.
    """

    attempt: AttemptId
    failure: msg.TaskFailure
    states: tuple[ExecutionState, ...]
    needed: bool = False


class Deliveries:
    """The outcomes of one job's messages.

    Args:
        fail: Called when a task cannot go on without a message.
    """

    def __init__(self, parts: JobParts, fail: Callable[[msg.TaskFailure, Execution | None], None]) -> None:
        self._parts = parts
        self._fail = fail
        self._tries: dict[tuple[AttemptId, CheckpointId | None], int] = {}
        self._suspects: dict[int, _Suspect] = {}  # by the token of the message
        self.releases = Releases(parts.outbox)

    def finished(self, attempt: AttemptId) -> msg.TaskFailure | None:
        """It reports FINISHED. Its failure, if a message that it needed may not have arrived."""
        return next((s.failure for s in self._suspects.values() if s.attempt == attempt and s.needed), None)

    def suspicion_over(self, token: int) -> None:
        """The worker is alive, so the message was lost."""
        suspect = self._suspects.pop(token, None)
        execution = None if suspect is None else self._parts.executions.find(suspect.attempt)
        if suspect is not None and execution is not None and execution.state in suspect.states:
            self._fail(suspect.failure, execution)

    def _suspect(self, token: int, suspect: _Suspect) -> None:
        self._suspects[token] = suspect
        self._parts.outbox.set_timer(Timer(TimerKind.UNDELIVERED, token), LOSS_GRACE_MS)

    def delivered(self, event: Delivered) -> msg.TaskFailure | None:
        send = self._parts.outbox.settle(event)
        match send.message if send is not None else None:
            case msg.TriggerCheckpoint():
                return self._parts.coordinator.trigger_settled(event.token, None)
            case msg.AssignSplits():
                self._parts.sources.delivered(event.token)
                return self._parts.coordinator.splits_delivered()
        return None

    def undelivered(self, event: Undelivered) -> msg.TaskFailure | None:
        """A message did not arrive, or its worker refused it: the failure of the job that follows, if any."""
        send = self._parts.outbox.settle(event)
        if send is None:
            return None
        match send.message:
            case msg.TriggerCheckpoint():
                return self._parts.coordinator.trigger_settled(event.token, event.reason, ended=event.refused)
            case msg.DeployTask(deployment=deployment):
                self._order_lost(deployment.attempt, event, (ExecutionState.DEPLOYING,))
            case msg.AssignSplits(attempt=attempt):
                execution = self._parts.executions.find(attempt)
                if execution is not None and execution.state is ExecutionState.FINISHED:
                    self._parts.sources.delivered(event.token)  # otherwise no snapshot would ever begin
                    return self._parts.coordinator.splits_delivered()
                self._order_lost(attempt, event, ALIVE)
            case msg.CancelTask(attempt=attempt):
                self._cancel_lost(attempt, event)
            case msg.CheckpointCompleted(attempt=attempt, checkpoint_id=checkpoint_id):
                self._completion_lost(attempt, checkpoint_id, event)
            case msg.ReleasePartitions():
                self.releases.undelivered(send, event)
        return None

    def _order_lost(self, attempt: AttemptId, event: Undelivered, states: tuple[ExecutionState, ...]) -> None:
        """The task cannot go on without the message. A refused deployment certainly does not run; a later
        message is refused when the task has ended there, and the report of that is on its way."""
        execution = self._parts.executions.find(attempt)
        if execution is None or execution.state not in states:
            return
        text = f"{execution.vertex_name} #{attempt.index} could not be reached: {event.reason}"
        failure = msg.TaskFailure(kind="Undelivered", message=text)
        if event.refused and execution.state is ExecutionState.DEPLOYING:
            self._parts.slots.pool.distrust(attempt.subtask)
            self._parts.executions.move(execution, ExecutionState.FAILED, event.reason)
            self._fail(failure, execution)
        else:
            self._suspect(event.token, _Suspect(attempt, failure, states, needed=states is ALIVE))

    def _cancel_lost(self, attempt: AttemptId, event: Undelivered) -> None:
        """A worker that refuses does not have the task; one that does not answer is sent it a few times."""
        execution = self._parts.executions.find(attempt)
        if execution is None or execution.state is not ExecutionState.CANCELING:
            return
        if event.refused:
            self._parts.executions.move(execution, ExecutionState.CANCELED, event.reason)
        elif self._may_repeat(attempt, None):
            self._parts.scheduler.send_cancel(execution)

    def _completion_lost(self, attempt: AttemptId, checkpoint_id: CheckpointId, event: Undelivered) -> None:
        """A task may need this notification to end, so it is repeated; then the task is given up."""
        execution = self._parts.executions.find(attempt)
        if execution is None or execution.state is not ExecutionState.RUNNING or event.refused:
            return
        if self._may_repeat(attempt, checkpoint_id):
            self._parts.coordinator.announce(execution, checkpoint_id)
            return
        text = f"{execution.vertex_name} #{attempt.index} could not be notified of checkpoint {checkpoint_id}"
        failure = msg.TaskFailure(kind="Undelivered", message=f"{text}: {event.reason}")
        self._suspect(event.token, _Suspect(attempt, failure, (ExecutionState.RUNNING,)))

    def _may_repeat(self, attempt: AttemptId, checkpoint_id: CheckpointId | None) -> bool:
        key = (attempt, checkpoint_id)
        self._tries[key] = self._tries.get(key, 1) + 1
        return self._tries[key] <= SEND_TRIES


class Releases:
    """Releases of stored results that a worker has not confirmed. Repeating one does no harm.

        sent ─► answered                      done; a worker that refuses has nothing, or is ending
          └───► no answer ─► LOSS_GRACE_MS ─► sent again while its worker may live, RELEASE_TRIES times in all

    A lost release would fill the disk of a worker that lives on, and nothing else would detect it. What is
    still open when the job ends is settled by the worker: its heartbeat names the jobs that it stores results
    for, and the response names those that have ended.
    """

    def __init__(self, outbox: CommandOutbox) -> None:
        self._outbox = outbox
        self._open: dict[int, Send] = {}  # by the token of the lost message
        self._tries: dict[int, int] = {}  # by the token of the message under way, if it is a repetition
        self._lost: set[TaskManagerId] = set()

    def undelivered(self, send: Send, event: Undelivered) -> None:
        """No answer to `send` came, or its worker has refused it."""
        tries = self._tries.get(event.token, 1)
        if event.refused or send.task_manager in self._lost or tries >= RELEASE_TRIES:
            return
        self._open[event.token] = send
        self._outbox.set_timer(Timer(TimerKind.RELEASE, event.token), LOSS_GRACE_MS)

    def overdue(self, token: int) -> None:
        """The worker was not lost meanwhile: sends the release again."""
        send = self._open.pop(token, None)
        tries = self._tries.pop(token, 1)
        if send is not None:
            self._tries[self._outbox.send_tracked(send.task_manager, send.message)] = tries + 1

    def lost(self, task_manager: TaskManagerId) -> None:
        """The worker is lost with everything that it stored."""
        self._lost.add(task_manager)
        self._open = {token: send for token, send in self._open.items() if send.task_manager != task_manager}

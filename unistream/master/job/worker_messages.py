"""Messages of one job to its workers, collected for each worker and sent together.

A job of hundreds of tasks deploys all of them at once; the messages of one step of the machine for one worker
are sent in one request (`unistream.model.bundle`), in the order of the commands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from unistream.base.errors import Fenced, UnistreamError
from unistream.base.ids import AttemptId, JobId, SubtaskId, TaskManagerId
from unistream.base.secrets import Secret
from unistream.core import contract
from unistream.core.contract import AttemptView
from unistream.master.service import Messages, OutgoingMessage, SendFailure
from unistream.model.job_info import TERMINAL_STATES
from unistream.model.messages import CancelTask, DeployTask, ToTaskManager

logger = logging.getLogger(__name__)


NO_TOKEN: Final = Secret("")


class GivenAttempt(NamedTuple):
    """Which attempt of a subtask was given to which worker."""

    attempt: int
    worker: TaskManagerId


class WorkerMessages:
    """The messages of one job. Used by the job's thread; `post` is called from any.

    Args:
        before_commit: Called before a committer of a BATCH job is deployed, which it is not if that raises.
        before_deploy: Called with the number of an attempt before it is deployed, in the same way. If one of
            the two raises Fenced, another leader has the job.
        exchange: The token with which tasks of the job read each other's rows.
    """

    def __init__(
        self,
        job: JobId,
        senders: Messages,
        post: Callable[[contract.Event], None],
        before_commit: Callable[[], None] = lambda: None,
        before_deploy: Callable[[int], None] = lambda _number: None,
        *,
        exchange: Secret = NO_TOKEN,
    ) -> None:
        self._exchange = exchange
        self._given: dict[SubtaskId, GivenAttempt] = {}
        self._before_commit = before_commit
        self._before_deploy = before_deploy
        self._job = job
        self._senders = senders
        self._post = post
        self._addresses: dict[TaskManagerId, str] = {}
        self._queued: dict[TaskManagerId, list[OutgoingMessage]] = {}
        self._not_deployed: dict[AttemptId, SendFailure] = {}  # reported so, hence never deployed later

    def granted(self, leases: Iterable[contract.SlotLease]) -> None:
        """The job has slots of these workers."""
        self._addresses.update({lease.task_manager: lease.address for lease in leases})

    def address(self, task_manager: TaskManagerId | None) -> str | None:
        """Flight location of a worker that the job has or had a slot of."""
        return None if task_manager is None else self._addresses.get(task_manager)

    def worker_of(self, attempt: AttemptId) -> TaskManagerId | None:
        """The worker that this attempt was given to; None: none, or a later one was. From any thread."""
        given = self._given.get(attempt.subtask)
        return given.worker if given is not None and given.attempt == attempt.attempt else None

    @property
    def workers(self) -> frozenset[TaskManagerId]:
        """The workers that were given an attempt of which no later one was given to another. From any
        thread."""
        return frozenset(given.worker for given in list(self._given.values()))

    def add(self, command: contract.Send) -> None:
        """Queues a message for the next `flush`. With a token its outcome is posted as an event."""
        token = command.token

        def on_outcome(failed: SendFailure | None) -> None:
            if token is not None and failed is None:
                self._post(contract.Delivered(token=token))
            elif token is not None and failed is not None:
                self._post(contract.Undelivered(token=token, reason=failed.reason, refused=failed.refused))
            elif failed is not None:
                logger.warning("event=message_undelivered job=%s reason=%r", self._job, failed.reason)

        refused = self._refused(command)
        if refused is not None:
            on_outcome(refused)
        elif command.task_manager in self._addresses:
            message = self._giving(command.message, command.task_manager)
            self._queued.setdefault(command.task_manager, []).append(OutgoingMessage(message, on_outcome))
        else:
            on_outcome(SendFailure(f"{command.task_manager} has no slot of this job", refused=True))

    def _giving(self, message: ToTaskManager, worker: TaskManagerId) -> ToTaskManager:
        """The message as it is sent: a deployment has the job's token, and its attempt is the worker's."""
        if not isinstance(message, DeployTask):
            return message
        attempt = message.deployment.attempt
        self._given[attempt.subtask] = GivenAttempt(attempt.attempt, worker)
        return DeployTask(deployment=msgspec.structs.replace(message.deployment, exchange=self._exchange))

    def _refused(self, command: contract.Send) -> SendFailure | None:
        message = command.message
        if not isinstance(message, DeployTask):
            return None
        attempt = message.deployment.attempt
        if attempt not in self._not_deployed:
            self._not_deployed = {
                one: why for one, why in self._not_deployed.items() if not _is_older(one, attempt)
            }
            failed = self._why_not(message)
            if failed is None:
                return None
            self._not_deployed[attempt] = failed
        return self._not_deployed[attempt]

    def _why_not(self, message: DeployTask) -> SendFailure | None:
        try:
            self._before_deploy(message.deployment.attempt.attempt)
            if message.deployment.reads_reported:
                self._before_commit()
        except UnistreamError as error:
            if isinstance(error, Fenced):
                self._post(contract.LeadershipLost(reason=str(error)))
            return SendFailure(
                f"nothing is started, since the store of the job failed: {error}", refused=True
            )
        return None

    def flush(self) -> None:
        """Sends the queued messages; never blocks."""
        queued, self._queued = self._queued, {}
        for task_manager, messages in queued.items():
            self._senders.send_all(task_manager, self._addresses[task_manager], messages)

    def cancel(self, attempts: Iterable[AttemptView]) -> None:
        """Cancels all attempts that may run, without the machine."""
        for attempt in attempts:
            address = self.address(attempt.task_manager)
            if attempt.task_manager and address and attempt.state not in TERMINAL_STATES:
                self._senders.send(attempt.task_manager, address, CancelTask(attempt=attempt.attempt))


def _is_older(one: AttemptId, than: AttemptId) -> bool:
    """An earlier attempt of the same subtask."""
    return one.subtask == than.subtask and one.attempt < than.attempt

"""Handles the master's messages about tasks. Each may arrive twice, and a cancellation before its
deployment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from unistream.base.clock import Clock
from unistream.base.ids import AttemptId, JobId
from unistream.model import messages as msg
from unistream.model.deployment import TaskDeployment
from unistream.worker.exchange import BlockingPartitions, PartitionKey, PartitionRegistry
from unistream.worker.process.slot_table import SlotTable
from unistream.worker.process.task_registry import TaskRegistry
from unistream.worker.task import Mail, TaskRun

ToTasks = (
    msg.DeployTask
    | msg.CancelTask
    | msg.ReleasePartitions
    | msg.TriggerCheckpoint
    | msg.AssignSplits
    | msg.CheckpointCompleted
    | msg.CheckpointAborted
)


class TaskControl:
    """Answers at once, from any thread.

    Args:
        new_task: Creates a task that is not started.
        background: For work that is too slow for an answer.
    """

    def __init__(
        self,
        new_task: Callable[[TaskDeployment], TaskRun],
        *,
        tasks: TaskRegistry,
        slots: SlotTable,
        partitions: PartitionRegistry,
        blocking: BlockingPartitions,
        background: Executor,
        clock: Clock,
    ) -> None:
        self._new_task = new_task
        self._tasks = tasks
        self._slots = slots
        self._partitions = partitions
        self._blocking = blocking
        self._background = background
        self._clock = clock

    def answer(self, message: ToTasks) -> msg.Answer:
        """Performs the message."""
        match message:
            case msg.DeployTask(deployment=deployment):
                return self._deploy(deployment)
            case msg.CancelTask(attempt=attempt):
                return self._cancel(attempt)
            case msg.ReleasePartitions(partitions=partitions):
                return self._release_partitions(partitions)
            case msg.TriggerCheckpoint() | msg.AssignSplits():
                return self._post(message, message.attempt, needed=True)
            case msg.CheckpointCompleted() | msg.CheckpointAborted():
                return self._post(message, message.attempt, needed=False)

    def jobs_are_over(self, jobs: Sequence[JobId]) -> None:
        """The master's answer to a heartbeat: it has released all partitions of these jobs."""
        for job in jobs:
            for sealed in self._blocking.detach_job(job):
                self._background.submit(sealed.delete)

    def _deploy(self, deployment: TaskDeployment) -> msg.Answer:
        attempt = deployment.attempt
        if self._tasks.is_known(attempt):
            return msg.Ack()
        refusal = self._slots.refusal(deployment.allocation, attempt.job)
        if refusal is not None:
            return msg.Refused(reason=refusal)
        self._partitions.expect(attempt.job, deployment.exchange.reveal())
        task = self._new_task(deployment)
        if not self._tasks.add(task):
            known = self._tasks.is_known(attempt)
            return msg.Ack() if known else msg.Refused(reason=f"a newer attempt than {attempt} is known")
        for older in self._tasks.older(attempt):
            self._cancel(older)
        self._slots.begin(deployment.allocation, attempt, task.start, self._clock.monotonic_ms())
        return msg.Ack()

    def _cancel(self, attempt: AttemptId) -> msg.Answer:
        """An attempt that has ended may still have output, which no task will read."""
        task = self._tasks.running(attempt)
        if task is not None:
            task.cancel()
            self._slots.hurry(attempt)
            return msg.Ack()
        self._partitions.release(attempt)
        if self._tasks.is_known(attempt):
            return msg.Ack()
        self._tasks.forbid(attempt)  # its deployment may be late
        return msg.Refused(reason=f"{attempt} is unknown here")

    def _release_partitions(self, partitions: Sequence[PartitionKey]) -> msg.Answer:
        """The answer does not wait until large files are deleted."""
        for sealed in self._blocking.detach(partitions):
            self._background.submit(sealed.delete)
        return msg.Ack()

    def _post(self, mail: Mail, attempt: AttemptId, *, needed: bool) -> msg.Answer:
        task = self._tasks.running(attempt)
        if task is not None:
            task.mailbox.post(mail)
            return msg.Ack()
        if not needed and self._tasks.is_known(attempt):
            return msg.Ack()  # it has ended
        return msg.Refused(reason=f"{attempt} is not running here")

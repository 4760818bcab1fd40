"""Why checkpoints fail, and how many failures in a row a job endures (Flink's CheckpointFailureManager)."""

from __future__ import annotations

from enum import Enum
from typing import Final

from unistream.base.ids import CheckpointId


class FailureReason(Enum):
    """Flink's names; the value is what people read."""

    PERIODIC_SCHEDULER_SHUTDOWN = "periodic checkpoints were stopped"
    TOO_MANY_CHECKPOINT_REQUESTS = "too many checkpoints are waiting"
    MINIMUM_TIME_BETWEEN_CHECKPOINTS = "the least pause between checkpoints has not passed"
    NOT_ALL_REQUIRED_TASKS_RUNNING = "not all tasks are running"
    IO_EXCEPTION = "the checkpoint storage failed"
    BLOCKING_OUTPUT_EXIST = "a blocking output exists"
    CHECKPOINT_ASYNC_EXCEPTION = "writing state in the background failed"
    CHANNEL_STATE_SHARED_STREAM_EXCEPTION = "writing channel state failed"
    CHECKPOINT_EXPIRED = "it took longer than execution.checkpointing.timeout"
    CHECKPOINT_SUBSUMED = "a newer checkpoint completed"
    CHECKPOINT_DECLINED = "a task declined"
    CHECKPOINT_DECLINED_TASK_NOT_READY = "a task was not ready"
    CHECKPOINT_DECLINED_TASK_CLOSING = "a task was ending"
    CHECKPOINT_DECLINED_SUBSUMED = "a newer barrier arrived"
    CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER = "an upstream task cancelled it"
    CHECKPOINT_DECLINED_INPUT_END_OF_STREAM = "an input ended"
    CHECKPOINT_COORDINATOR_SHUTDOWN = "the job ended"
    CHECKPOINT_COORDINATOR_SUSPEND = "the job was interrupted"
    JOB_FAILOVER_REGION = "the job restarted"
    FINALIZE_CHECKPOINT_FAILURE = "its metadata could not be completed"
    TASK_FAILURE = "a task failed"
    TASK_CHECKPOINT_FAILURE = "a task failed while taking it"
    UNKNOWN_TASK_CHECKPOINT_NOTIFICATION_FAILURE = "a notification failed"
    TRIGGER_CHECKPOINT_FAILURE = "the tasks could not be triggered"

    @property
    def counts(self) -> bool:
        """It is a failure of checkpointing itself, and counts towards the tolerable ones."""
        return self in _COUNTED

    @property
    def is_pre_flight(self) -> bool:
        """It comes up before any task was told of the checkpoint, so none has to hear that it is over."""
        return self in _PRE_FLIGHT


_PRE_FLIGHT: Final = frozenset(
    {
        FailureReason.PERIODIC_SCHEDULER_SHUTDOWN,
        FailureReason.TOO_MANY_CHECKPOINT_REQUESTS,
        FailureReason.MINIMUM_TIME_BETWEEN_CHECKPOINTS,
        FailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING,
        FailureReason.IO_EXCEPTION,
        FailureReason.BLOCKING_OUTPUT_EXIST,
    }
)
_COUNTED: Final = frozenset(
    {
        FailureReason.IO_EXCEPTION,
        FailureReason.CHECKPOINT_ASYNC_EXCEPTION,
        FailureReason.CHECKPOINT_EXPIRED,
        FailureReason.CHECKPOINT_DECLINED,
        FailureReason.FINALIZE_CHECKPOINT_FAILURE,
    }
)


def declined_reason(text: str) -> tuple[FailureReason, str]:
    """The reason in a task's decline, and what else it says: it may begin with a name of this table; anything
    else counts as CHECKPOINT_DECLINED.

    >>> declined_reason("CHECKPOINT_ASYNC_EXCEPTION: disk full")
    (<FailureReason.CHECKPOINT_ASYNC_EXCEPTION: 'writing state in the background failed'>, 'disk full')
    """
    name, _, rest = text.partition(":")
    reason = FailureReason.__members__.get(name.strip())
    return (FailureReason.CHECKPOINT_DECLINED, text) if reason is None else (reason, rest.strip())


class FailureCounter:
    """Failures in a row, each checkpoint once; cleared by a success and when the job was failed."""

    def __init__(self, tolerable: int) -> None:
        self._tolerable = tolerable
        self._count = 0
        self._counted: set[CheckpointId] = set()
        self._last_success: CheckpointId | None = None

    def succeeded(self, checkpoint_id: CheckpointId) -> None:
        """A checkpoint or savepoint completed; one older than the last success changes nothing."""
        if self._last_success is None or checkpoint_id > self._last_success:
            self._last_success = checkpoint_id
            self._clear()

    def failed(self, checkpoint_id: CheckpointId | None, reason: FailureReason, *, savepoint: bool) -> bool:
        """True: that was one too many, the job has to fail. `checkpoint_id` None: it had none yet.

        `savepoint`: a savepoint of a job that goes on, which failed at the master: that is the asker's alone,
        since a restart would not help. What a task could not do counts for savepoints, too: a restart may
        help, and the next checkpoint would meet the same.
        """
        outdated = (
            checkpoint_id is not None
            and self._last_success is not None
            and checkpoint_id < self._last_success
        )
        if savepoint or outdated or not reason.counts or checkpoint_id in self._counted:
            return False
        if checkpoint_id is not None:
            self._counted.add(checkpoint_id)
        self._count += 1
        if self._count <= self._tolerable:
            return False
        self._clear()
        return True

    def _clear(self) -> None:
        self._count = 0
        self._counted.clear()

"""Why a checkpoint did not complete: Flink's CheckpointFailureReason."""

from __future__ import annotations

from enum import Enum
from typing import Final


class FailureReason(Enum):
    """Flink's names; the value is what people read."""

    PERIODIC_SCHEDULER_SHUTDOWN = "periodic checkpoints were stopped"
    TOO_MANY_CHECKPOINT_REQUESTS = "too many checkpoints are waiting"
    MINIMUM_TIME_BETWEEN_CHECKPOINTS = "the minimum pause between checkpoints has not passed"
    NOT_ALL_REQUIRED_TASKS_RUNNING = "not all tasks are running"
    IO_EXCEPTION = "the checkpoint storage failed"
    BLOCKING_OUTPUT_EXIST = "a stored (blocking) exchange is still written or read: try again after that"
    CHECKPOINT_ASYNC_EXCEPTION = "writing state in the background failed"
    CHANNEL_STATE_SHARED_STREAM_EXCEPTION = "writing channel state failed"
    CHECKPOINT_EXPIRED = "it took longer than execution.checkpointing.timeout"
    CHECKPOINT_SUBSUMED = "a newer checkpoint completed"
    CHECKPOINT_DECLINED = "a task declined"
    CHECKPOINT_DECLINED_TASK_NOT_READY = "a task was not ready"
    CHECKPOINT_DECLINED_TASK_CLOSING = "a task was ending"
    CHECKPOINT_DECLINED_SUBSUMED = "a newer barrier arrived"
    CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER = "an upstream task canceled it"
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
        """Counts towards the tolerable failures."""
        return self in _COUNTED


_COUNTED: Final = frozenset(
    {
        FailureReason.IO_EXCEPTION,
        FailureReason.CHECKPOINT_ASYNC_EXCEPTION,
        FailureReason.CHECKPOINT_EXPIRED,
        FailureReason.CHECKPOINT_DECLINED,
        FailureReason.FINALIZE_CHECKPOINT_FAILURE,
    }
)

"""Why checkpoints fail, and how many failures in a row a job endures (Flink's CheckpointFailureManager)."""

from __future__ import annotations

from unistream.base.ids import CheckpointId
from unistream.model.failure_reason import FailureReason


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

        `savepoint`: a savepoint of a job that goes on, which failed at the master: only its user's concern,
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

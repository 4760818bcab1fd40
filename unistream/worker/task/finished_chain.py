"""What a task does in place of its operators, and the stand-in for those that had finished."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from unistream.base.errors import ProtocolError
from unistream.base.ids import CheckpointId, OperatorUid
from unistream.base.limits import MIN_WATERMARK
from unistream.model.elements import Batch, Watermark
from unistream.model.snapshot import OperatorSnapshot, OperatorState
from unistream.port.operator import CommitPermit, OperatorContext
from unistream.worker.exchange import OutputPartition
from unistream.worker.task.source_operator import SourceOperator


class Fence(Protocol):
    """Calls an action of an operator; what that raises names the operator, and says what it was doing."""

    def __call__(self, action: Callable[[], None], doing: str = ...) -> None: ...


ContextOf = Callable[[OperatorUid, str, Fence], OperatorContext]
"""(uid, name, how to call an action of it) -> context."""


class TaskChain(Protocol):
    """The operators of a task, as the task calls them; see `OperatorChain` for each order."""

    def setup(self, context_of: ContextOf) -> None: ...

    def open(self, state_of: Callable[[OperatorUid], OperatorState]) -> None: ...

    def process_batch(self, batch: Batch, input_index: int) -> None: ...

    def poll(self, source: SourceOperator) -> bool: ...

    def process_watermark(self, timestamp: int) -> None: ...

    def process_watermark_status(self, idle: bool) -> None: ...

    def end_input(self, input_index: int) -> None: ...

    def finish(self, quiesce: Callable[[OperatorUid], None]) -> None: ...

    def prepare_snapshot_pre_barrier(self, checkpoint_id: CheckpointId) -> None: ...

    def snapshot_state(self, checkpoint_id: CheckpointId) -> dict[OperatorUid, OperatorSnapshot]: ...

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None: ...

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None: ...

    def close(self) -> None: ...

    def located(self, uid: OperatorUid, doing: str, error: BaseException) -> BaseException: ...


class FinishedChain:
    """A vertex that had finished before the checkpoint it is restored from: no user code runs; only the
    end of event time passes (the end of data and barriers are the task's)."""

    def __init__(self, partitions: Sequence[OutputPartition]) -> None:
        self._partitions = partitions
        self._watermark = MIN_WATERMARK

    def setup(self, context_of: ContextOf) -> None:
        """Nothing runs."""

    def open(self, state_of: Callable[[OperatorUid], OperatorState]) -> None:
        """Nothing runs."""

    def process_batch(self, batch: Batch, input_index: int) -> None:
        raise ProtocolError("rows arrived for a task that was restored as finished")

    def poll(self, source: SourceOperator) -> bool:
        raise AssertionError("a source that is restored as finished is not made")

    def process_watermark(self, timestamp: int) -> None:
        if timestamp > self._watermark:
            self._watermark = timestamp
            for partition in self._partitions:
                partition.broadcast(Watermark(timestamp))

    def process_watermark_status(self, idle: bool) -> None:
        """Only MAX_WATERMARK follows."""

    def end_input(self, input_index: int) -> None:
        """Ended before."""

    def finish(self, quiesce: Callable[[OperatorUid], None]) -> None:
        """Finished before."""

    def prepare_snapshot_pre_barrier(self, checkpoint_id: CheckpointId) -> None:
        """Nothing is held back."""

    def snapshot_state(self, checkpoint_id: CheckpointId) -> dict[OperatorUid, OperatorSnapshot]:
        return {}

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        """Everything was committed before."""

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None:
        """Nothing waits for it."""

    def close(self) -> None:
        """Nothing was opened."""

    def located(self, uid: OperatorUid, doing: str, error: BaseException) -> BaseException:
        return error  # nobody's: there is no state

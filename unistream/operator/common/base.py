"""Defaults for every method of `unistream.port.operator.Operator`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from unistream.base.errors import UserCodeError
from unistream.base.ids import CheckpointId
from unistream.model.elements import Batch
from unistream.model.snapshot import OperatorSnapshot, OperatorState
from unistream.port.lineage import Origins, same_columns
from unistream.port.operator import CommitPermit, OperatorContext, Output


class BaseOperator:
    """An operator without state that forwards rows. A subclass keeps its configuration in `__init__`
    (picklable) and creates everything else in `open` or `initialize_state`."""

    forwards_watermarks: bool = True
    uses_managed_memory: bool = False
    _context: OperatorContext | None = None
    _output: Output | None = None

    @property
    def context(self) -> OperatorContext:
        """The context; after `setup`."""
        assert self._context is not None, "setup comes first"
        return self._context

    @property
    def output(self) -> Output:
        """The output; after `setup`."""
        assert self._output is not None, "setup comes first"
        return self._output

    def setup(self, context: OperatorContext, output: Output) -> None:
        self._context = context
        self._output = output

    def initialize_state(self, state: OperatorState) -> None:
        """Restores nothing: the operator has no state."""

    def open(self) -> None:
        """Acquires nothing, such as files or connections."""

    def process_batch(self, batch: Batch, input_index: int) -> None:
        self.output.emit(batch)

    def process_watermark(self, timestamp: int) -> None:
        """Has no event timers."""

    def process_watermark_status(self, idle: bool) -> None:
        """Does nothing: the operator buffers nothing."""

    def end_input(self, input_index: int) -> None:
        """Does nothing: the operator buffers nothing."""

    def finish(self) -> None:
        """Does nothing: the operator buffers nothing."""

    def prepare_snapshot_pre_barrier(self, checkpoint_id: CheckpointId) -> None:
        """Does nothing: the operator buffers nothing."""

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        return OperatorSnapshot()

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        """Does nothing: the operator commits nothing."""

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None:
        """Does nothing: the operator has nothing to drop."""

    def close(self) -> None:
        """Does nothing: the operator has acquired nothing."""

    def user_error(
        self, what: str, error: BaseException | None = None, row: int | None = None
    ) -> UserCodeError:
        """The error to raise for a failure of user code.

        Args:
            what: The cause and what happened, such as ``"function 'parse'"``.
            error: The exception, if there is one.
            row: Position in the batch of the first failed row, if it is known.
        """
        where = "" if row is None else f" at row {row} of the batch"
        raised = "" if error is None else f" raised {type(error).__name__}: {error}"
        name = self._context.name if self._context else type(self).__name__
        index = self._context.index if self._context else 0
        found = UserCodeError(f"operator {name!r}, subtask {index}: {what}{raised}{where}")
        found.row = row
        return found


class ForwardsColumns(BaseOperator):
    """One whose outputs have the columns of its only input, and perhaps others."""

    def column_origins(self, inputs: Sequence[pa.Schema], tag: str | None) -> Origins:
        """See `unistream.port.lineage`."""
        return same_columns(inputs[0])


def function_name(function: Any) -> str:
    """The name of a user's function in messages: ``function 'len'``."""
    return f"function {getattr(function, '__name__', type(function).__name__)!r}"

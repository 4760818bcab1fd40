"""Rows that the target of a sink would refuse are left out, or become dead letters, before the writer."""

from __future__ import annotations

from unistream.base.errors import UserCodeError
from unistream.model.elements import Batch
from unistream.operator.common import ForwardsRows, RowErrors
from unistream.port.dead_letters import OnError
from unistream.port.sink import ChecksRows, RowCheck


class RowRefused(UserCodeError):
    """The target of a sink would refuse the row."""


class CheckedRows(ForwardsRows):
    """Chained before the writer of `sink`, so that a row and its letter are in one checkpoint."""

    def __init__(self, sink: ChecksRows, *, on_error: OnError) -> None:
        self._sink = sink
        self._check: RowCheck | None = None
        self.errors = RowErrors(on_error)

    def open(self) -> None:
        self._check = self._sink.create_row_check()
        self._check.open()

    def process_batch(self, batch: Batch, input_index: int) -> None:
        assert self._check is not None, "open comes first"
        refused = self._check.refused(batch)
        if not refused:
            self.output.emit(batch)
            return
        kept = self.without(batch, {row: RowRefused(reason) for row, reason in refused.items()})
        if kept.num_rows:
            self.output.emit(kept)

"""An operator whose input is not its stream but rows that it could not process before: dead letters.

    letters (row_ipc, event_time, attempt, letter) ─► Replayed ─► the operator's own outputs

The operator itself notices nothing, except that letters of rows which fail again count their attempts. In the
place of a source whose records are replayed stands `InsteadOfSource`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa

from unistream.base.errors import UserCodeError
from unistream.base.ids import CheckpointId
from unistream.model.elements import Batch
from unistream.model.snapshot import OperatorSnapshot, OperatorState
from unistream.operator.common import BaseOperator, RowOperator, decoded_row, timestamps_of
from unistream.port.dead_letters import LETTER_SCHEMA
from unistream.port.operator import CommitPermit, Operator, OperatorContext, Output

REPLAYED_COLUMNS: Final = pa.schema(
    [LETTER_SCHEMA.field(name) for name in ("letter", "row_ipc", "event_time", "attempt")]
)
"""What is needed of a letter."""

LETTERS_INPUT: Final = 0
"""The only input whose rows become letters."""


class Replayed(BaseOperator):
    """Passes the rows of letters to `operator`, and everything else unchanged."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self.forwards_watermarks = operator.forwards_watermarks
        self.uses_managed_memory = operator.uses_managed_memory

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._operator.setup(context, output)

    def initialize_state(self, state: OperatorState) -> None:
        self._operator.initialize_state(state)

    def open(self) -> None:
        self._operator.open()

    def process_batch(self, batch: Batch, input_index: int) -> None:
        if input_index != LETTERS_INPUT:
            self._operator.process_batch(batch, input_index)
            return
        ids, attempts = (batch.records.column(name).to_pylist() for name in ("letter", "attempt"))
        for rows, start, stop in _decoded(batch.records, ids):
            if isinstance(self._operator, RowOperator):
                self._operator.errors.replayed = (attempts[start:stop], ids[start:stop])
            self._operator.process_batch(rows, input_index)

    def process_watermark(self, timestamp: int) -> None:
        self._operator.process_watermark(timestamp)

    def process_watermark_status(self, idle: bool) -> None:
        self._operator.process_watermark_status(idle)

    def end_input(self, input_index: int) -> None:
        self._operator.end_input(input_index)

    def finish(self) -> None:
        self._operator.finish()

    def prepare_snapshot_pre_barrier(self, checkpoint_id: CheckpointId) -> None:
        self._operator.prepare_snapshot_pre_barrier(checkpoint_id)

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        return self._operator.snapshot_state(checkpoint_id)

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        self._operator.notify_checkpoint_complete(permit)

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None:
        self._operator.notify_checkpoint_aborted(checkpoint_id)

    def close(self) -> None:
        self._operator.close()


class InsteadOfSource(BaseOperator):
    """Rows that a source has read of its dead letters, with the event times that it would have given to them.

    Args:
        timestamp_column: Of its watermark strategy; None: the source's own times.
    """

    def __init__(self, timestamp_column: str | None) -> None:
        self._timestamp_column = timestamp_column

    def process_batch(self, batch: Batch, input_index: int) -> None:
        if self._timestamp_column is not None:
            batch = Batch(batch.records, timestamps_of(self, batch.records, self._timestamp_column))
        if batch.num_rows:
            self.output.emit(batch)


def _decoded(letters: pa.RecordBatch, ids: Sequence[str]) -> Iterator[tuple[Batch, int, int]]:
    """The rows in batches of one schema, with or without event times, and which letters they are of. A letter
    has one row; that of a source may have none or several."""
    rows = list(map(_row, ids, letters.column("row_ipc").to_pylist()))
    times = letters.column("event_time").cast(pa.int64())
    has_time = times.is_valid().to_pylist()
    for (schema, timed), places in groupby(
        range(len(rows)), key=lambda place: (_Same(rows[place].schema), has_time[place])
    ):
        start, *more = places
        stop = more[-1] + 1 if more else start + 1
        records = pa.concat_batches(
            [pa.RecordBatch.from_arrays(row.columns, schema=schema.schema) for row in rows[start:stop]]
        )
        of_letters = np.repeat(np.arange(start, stop), [row.num_rows for row in rows[start:stop]])
        yield Batch(records, times.take(pa.array(of_letters)) if timed else None), start, stop


class _Same:
    """A schema that is equal to another one with the same columns and types."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.schema.equals(other.schema)

    def __hash__(self) -> int:
        return hash(tuple(self.schema.names))


def _row(letter: str, content: bytes) -> pa.RecordBatch:
    try:
        return decoded_row(content)
    except pa.ArrowException as error:
        raise UserCodeError(f"the row of dead letter {letter} cannot be read: {error}") from error

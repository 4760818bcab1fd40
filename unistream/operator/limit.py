"""The first rows of a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from unistream.base.ids import CheckpointId
from unistream.model.elements import Batch
from unistream.model.snapshot import ListMode, OperatorListState, OperatorSnapshot, OperatorState
from unistream.operator.common import ForwardsColumns
from unistream.port.projection import UsedColumns

PASSED_STATE: Final = "passed"


class LimitRows(ForwardsColumns):
    """Passes the first `limit` rows, whichever come first, and drops the others. It has one subtask."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = limit

    def used_columns(
        self, inputs: Sequence[pa.Schema], wanted: Mapping[str | None, UsedColumns]
    ) -> Sequence[UsedColumns]:
        return [wanted[None]]

    def initialize_state(self, state: OperatorState) -> None:
        self._left = self._limit - sum(map(_count, state.lists.get(PASSED_STATE, [])))

    def process_batch(self, batch: Batch, input_index: int) -> None:
        passed = batch.slice(0, min(batch.num_rows, max(self._left, 0)))
        self._left -= passed.num_rows
        if passed.num_rows:
            self.output.emit(passed)

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        passed = msgspec.msgpack.encode(self._limit - self._left)
        return OperatorSnapshot(lists={PASSED_STATE: OperatorListState(ListMode.SPLIT, (passed,))})


def _count(item: bytes) -> int:
    return msgspec.msgpack.decode(item, type=int)

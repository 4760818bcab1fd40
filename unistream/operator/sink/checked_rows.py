"""Rows that the target of a sink would refuse are left out, or become dead letters, before the writer."""

from __future__ import annotations

from typing import Final

from unistream.base.errors import UserCodeError
from unistream.base.ids import CheckpointId, OperatorUid
from unistream.model.elements import Batch
from unistream.model.snapshot import ListMode, OperatorListState, OperatorSnapshot, OperatorState
from unistream.operator.common import ForwardsRows, RowErrors
from unistream.port.dead_letters import OnError
from unistream.port.sink import ChecksRows, FollowsCommits, RowCheck

CHECK_STATE: Final = "row-check"


class RowRefused(UserCodeError):
    """The target of a sink would refuse the row."""


class CheckedRows(ForwardsRows):
    """Chained before the writer of `sink`, so that a row and its letter are in one checkpoint.

    Attributes:
        sink_uid: Identifies the commits of the sink; None: the sink is not made yet.
    """

    sink_uid: OperatorUid | None = None

    def __init__(self, sink: ChecksRows, *, on_error: OnError) -> None:
        self._sink = sink
        self._check: RowCheck | None = None
        self.errors = RowErrors(on_error)

    def initialize_state(self, state: OperatorState) -> None:
        self._check = self._sink.create_row_check()
        if (follows := self._follows) is not None and self.sink_uid is not None:
            items = state.lists.get(CHECK_STATE, [])
            follows.follow(self.context.lineage, self.sink_uid, state.checkpoint_id, items)

    def open(self) -> None:
        assert self._check is not None, "initialize_state comes first"
        self._check.open()

    def prepare_snapshot_pre_barrier(self, checkpoint_id: CheckpointId) -> None:
        if (follows := self._follows) is not None:
            follows.passed(checkpoint_id)

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        items = () if (follows := self._follows) is None else tuple(follows.snapshot_state())
        return OperatorSnapshot(
            lists={CHECK_STATE: OperatorListState(ListMode.UNION, items, may_miss=True)} if items else {}
        )

    def close(self) -> None:
        if (follows := self._follows) is not None:
            follows.close()

    @property
    def _follows(self) -> FollowsCommits | None:
        return self._check if isinstance(self._check, FollowsCommits) else None

    def process_batch(self, batch: Batch, input_index: int) -> None:
        assert self._check is not None, "initialize_state comes first"
        refused = self._check.refused(batch)
        if not refused:
            self.output.emit(batch)
            return
        kept = self.without(batch, {row: RowRefused(reason) for row, reason in refused.items()})
        if kept.num_rows:
            self.output.emit(kept)

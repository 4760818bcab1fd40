"""The committer of a commit group: one input for each of its sinks, one commit for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from unistream.base.ids import CheckpointId, OperatorUid
from unistream.model.elements import Batch
from unistream.operator.sink.commit_rounds import Committed
from unistream.operator.sink.committables import of_member
from unistream.operator.sink.committer import CommitterOperator
from unistream.port.sink import Sink


class SinkOfGroup(Sink, Protocol):
    """The members of a group, as one sink."""

    @property
    def members(self) -> tuple[OperatorUid, ...]:
        """Uid of the sink at each input."""

    def wrapped(self, member: OperatorUid, payload: bytes) -> bytes:
        """A committable of a member, as one of the group."""


class GroupCommitterOperator(CommitterOperator):
    """Committables of all members in; commits them together when a durable manifest lists them."""

    def __init__(self, group: SinkOfGroup, sink_uid: OperatorUid | None = None) -> None:
        super().__init__(group, sink_uid)
        self._group = group
        self._inputs_ended: set[int] = set()

    def process_batch(self, batch: Batch, input_index: int) -> None:
        member, members = self._group.members[input_index], len(self._group.members)
        wrapped = of_member(
            batch.records, input_index, members, lambda payload: self._group.wrapped(member, payload)
        )
        self._committables.add(wrapped)

    def end_input(self, input_index: int) -> None:
        self._inputs_ended.add(input_index)
        if len(self._inputs_ended) == len(self._group.members):
            super().end_input(input_index)

    def _report(self, committed: Committed, watermarks: Mapping[CheckpointId, int | None]) -> None:
        for uid, result in committed.result.members:
            self._report_rows(uid, committed.checkpoint_id, result, watermarks)
        self._count(committed)

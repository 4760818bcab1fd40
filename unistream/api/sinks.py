"""Where a stream ends."""

from __future__ import annotations

from typing import Self

from unistream.api.graph import GraphBuilder, Port
from unistream.api.settings import OperatorSettings
from unistream.api.slots import SlotSharingGroup
from unistream.base.errors import ConfigError
from unistream.base.ids import OperatorUid
from unistream.model.graph import Ship
from unistream.model.stream_graph import StreamNode
from unistream.operator.sink import CommitterOperator, SinkWriterOperator
from unistream.port.sink import Sink
from unistream.port.source import DEAD_LETTERS_TAG


class DataStreamSink(OperatorSettings):
    """A sink: a writer, and for transactional ones a committer behind it.

    Settings are those of the writer. A committer of a table (`Sink.global_committer`) is one for
    all writers; otherwise each writer has its own.
    """

    def __init__(self, builder: GraphBuilder, ports: tuple[Port, ...], sink: Sink) -> None:
        self._builder = builder
        self._operators: list[SinkWriterOperator | CommitterOperator] = [SinkWriterOperator(sink)]
        self._writer = builder.add(sink.name, self._operators[0], [ports], stateful=True)
        self._committer: StreamNode | None = None
        if sink.create_committer() is not None:
            self._add_committer(sink)
        self._commit_as(OperatorUid(f"{sink.name}-{self._writer.id}"))

    def _add_committer(self, sink: Sink) -> None:
        operator = CommitterOperator(sink)
        self._operators.append(operator)
        ship = Ship.GLOBAL if sink.global_committer else Ship.FORWARD
        inputs = [[Port(self._writer.id)]]
        node = self._builder.add(f"{sink.name} committer", operator, inputs, stateful=True, ship=ship)
        if sink.global_committer:
            node.parallelism = 1
        else:
            self._builder.follows[node.id] = self._writer.id
        self._committer = node

    def _commit_as(self, uid: OperatorUid) -> None:
        """Commits are told apart by it, so writer and committer must agree."""
        for operator in self._operators:
            operator.sink_uid = uid

    def _node(self, what: str) -> StreamNode:
        return self._writer

    def uid(self, uid: str) -> Self:
        """Stable identity of the sink: of its state, and of its commits in the outside system. The
        committer's operator has the uid with ``-committer`` behind it.

        Raises:
            ConfigError: another operator has it.
        """
        super().uid(uid)
        if self._committer is not None:
            self._builder.set_uid(self._committer, f"{uid}-committer")
        self._commit_as(OperatorUid(uid))
        return self

    def name(self, name: str) -> Self:
        super().name(name)
        if self._committer is not None:
            self._committer.name = f"{name} committer"
        return self

    def slot_sharing_group(self, group: str | SlotSharingGroup) -> Self:
        """Writer and committer never share a slot with operators of another group."""
        super().slot_sharing_group(group)
        if self._committer is not None:
            self._committer.slot_sharing_group = self._writer.slot_sharing_group
        return self

    def disable_chaining(self) -> Self:
        """Writer and committer get a task of their own each."""
        super().disable_chaining()
        if self._committer is not None:
            self._committer.chaining = self._writer.chaining
        return self


def check_sends_dead_letters(builder: GraphBuilder, node: StreamNode) -> None:
    """Raises ConfigError unless `node` is a source that sends what it cannot decode to a side output."""
    if (node.id, DEAD_LETTERS_TAG) not in builder.side_schemas:
        raise ConfigError(
            f"dead_letters_to: {node.name!r} sends no dead letters; it must be the stream of a source that "
            'was told to, as KafkaSource(..., on_bad_record="dead-letter")'
        )

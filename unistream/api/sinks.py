"""Where a stream ends."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Final, Protocol, Self

import pyarrow as pa

from unistream.api.commit_group import CommitGroup, GroupMember
from unistream.api.described import is_described
from unistream.api.graph import GraphBuilder, Port
from unistream.api.settings import OperatorSettings
from unistream.api.slots import SlotSharingGroup
from unistream.base.errors import ConfigError
from unistream.base.ids import OperatorUid
from unistream.core.graph import uid_of
from unistream.model.graph import Ship
from unistream.model.stream_graph import StreamGraph, StreamNode
from unistream.operator.sink import (
    CheckedRows,
    CommittableStageOperator,
    CommitterOperator,
    GroupCommitterOperator,
    OnCommitOperator,
    SinkOperator,
    SinkWriterOperator,
    StageCommitter,
)
from unistream.port.line import KeepsLine, LineCommit
from unistream.port.sink import (
    CommittableStage,
    Committer,
    RecordsPositions,
    Sink,
    SoleCommitter,
    WithGlobalCommitter,
    WithPostCommitStages,
    WithPreCommitStages,
    is_transactional,
)
from unistream.port.source import DEAD_LETTERS_TAG

ENDS_SHOWN: Final = 5  # in one sentence
_REPLACE: Final[ContextVar[Callable[[Sink], Sink] | None]] = ContextVar("replace", default=None)


@contextmanager
def sinks_replaced(replace: Callable[[Sink], Sink]) -> Iterator[None]:
    """A block inside which each sink of this thread's pipelines is replaced by `replace(sink)` before any
    method of it is called, even `check`: for a pipeline that must not reach external systems."""
    token = _REPLACE.set(replace)
    try:
        yield
    finally:
        _REPLACE.reset(token)


def check_sink(sink: Sink, schema: pa.Schema | None) -> None:
    """Raises ConfigError, Unreachable: as `Sink.check`. A pipeline that is described needs no target."""
    if not is_described():
        sink.check(schema)


def sink_used(sink: Sink) -> Sink:
    """`sink`, or its replacement; see `sinks_replaced`.

    Raises:
        ConfigError: it is not a sink.
    """
    if inspect.isclass(sink) or not callable(getattr(sink, "create_writer", None)):
        raise ConfigError(f"sink_to takes a sink such as us.DeltaSink(...), not {sink!r:.200}")
    replace = _REPLACE.get()
    return sink if replace is None else replace(sink)


def check_new_lines(graph: StreamGraph) -> None:
    """Checks the targets of a job that starts from no snapshot. Raises ConfigError: another line of jobs
    writes a sink's target."""
    for node in graph.nodes:
        operator = node.operator
        sink = operator.sink if isinstance(operator, SinkWriterOperator | GroupCommitterOperator) else None
        if isinstance(sink, KeepsLine):
            sink.check_new_line()


def sinks_of(graph: StreamGraph) -> dict[str, Sink]:
    """The sinks of a pipeline by uid."""
    found: dict[str, Sink] = {}
    for node in graph.nodes:
        if isinstance(node.operator, SinkWriterOperator):
            found[uid_of(node)] = node.operator.sink
    return found


def commit_advice(graph: StreamGraph) -> str | None:
    """A warning about an endless stream without checkpoints; None: it has no source without end, or no sink
    that commits."""
    endless = [n.name for n in graph.nodes if n.endless or (n.source is not None and not n.source.bounded)]
    committing = [uid for uid, sink in sinks_of(graph).items() if is_transactional(sink)]
    if not endless or not committing:
        return None
    return (
        f"checkpointing is off, so nobody sees the rows of sink {committing[0]!r} before the job is stopped "
        f"with a savepoint, and after a failure {endless[0]!r} is read from its beginning; set "
        "execution.checkpointing.interval, such as '10 s'"
    )


def dangling_advice(graph: StreamGraph) -> str | None:
    """A warning about streams that end in no sink; None: all do."""
    ends = [f"{n.name!r}" + (f" ({n.declared_at})" if n.declared_at else "") for n in graph.dangling()]
    if not ends:
        return None
    more = f" and of {len(ends) - ENDS_SHOWN} more" if len(ends) > ENDS_SHOWN else ""
    return (
        f"the rows of {', '.join(ends[:ENDS_SHOWN])}{more} are dropped, as no sink takes them: end the "
        "stream by .sink_to(…) or .print(), or leave it out"
    )


def check_does_something(graph: StreamGraph) -> None:
    """Raises ConfigError: there is nothing but sources (Flink: no operators in the topology)."""
    if all(node.source is not None for node in graph.nodes):
        names = ", ".join(repr(node.name) for node in graph.nodes[:ENDS_SHOWN])
        raise ConfigError(
            f"the pipeline reads {names} and does nothing with the rows: add operators and a sink, such as "
            ".sink_to(us.FileSink('lake/orders')) or .print()"
        )


def last_commits(graph: StreamGraph) -> list[tuple[str, LineCommit]]:
    """The last commit of each sink whose target records it, by the uid of the sink."""
    lines = [(uid, sink) for uid, sink in sinks_of(graph).items() if isinstance(sink, KeepsLine)]
    return [(uid, commit) for uid, sink in lines if (commit := sink.last_commit(uid)) is not None]


def without_line(graph: StreamGraph) -> frozenset[str]:
    """Uids of the sinks whose targets do not record which jobs have written them."""
    return frozenset(uid for uid, sink in sinks_of(graph).items() if not isinstance(sink, KeepsLine))


class CheckedStream(Protocol):
    """The rows that a sink's target takes: a `DataStream`, which this module does not know."""

    def uid(self, uid: str) -> object: ...

    def name(self, name: str) -> object: ...

    def dead_letters_to(self, sink: Sink) -> DataStreamSink: ...


class DataStreamSink(OperatorSettings):
    """A sink: a writer and, if it is transactional, the operators that commit.

    Settings are those of the writer. A commit group has one committer for all its sinks; without one,
    with `Sink.global_committer`, one committer serves all writers; otherwise each writer has its own, and so
    has each parallel stage.
    """

    def __init__(
        self,
        builder: GraphBuilder,
        ports: tuple[Port, ...],
        sink: Sink,
        *,
        checked: tuple[CheckedStream, CheckedRows] | None = None,
        group: CommitGroup | None = None,
    ) -> None:
        self._builder = builder
        self._checked: CheckedStream | None = None
        self._check: CheckedRows | None = None
        if checked is not None:
            self._checked, self._check = checked
        self._sink = sink
        writer = SinkWriterOperator(sink)
        self._writer = builder.add(sink.name, writer, [ports], stateful=True)
        self._operators: list[tuple[SinkOperator, str]] = [(writer, "")]  # suffix of its commits' uid
        self._behind: list[tuple[StreamNode, str, str]] = []  # suffixes of its uid and its name
        self._writer.sink = self._writer.id
        if checked is not None:
            builder.follows[ports[0].node] = self._writer.id
        self._last = self._writer
        self._spread = True  # all operators so far have one subtask for each writer
        if group is not None:
            builder.group_members.append(GroupMember(group, self._writer.id, writer))
        elif is_transactional(sink):
            self._add_committing(sink)
        self._commit_as(f"{sink.name}-{self._writer.id}")

    def _add_committing(self, sink: Sink) -> None:
        for stage in sink.pre_commit_stages() if isinstance(sink, WithPreCommitStages) else ():
            operator = CommittableStageOperator(sink, stage)
            self._append(operator, f"pre-commit-{stage.name}", f"{stage.name}", spread=stage.parallel)
        first = sink.create_global_committer if isinstance(sink, WithGlobalCommitter) else None
        committer = sink.create_committer()
        if committer is not None:
            self._append(CommitterOperator(sink), "committer", "committer", spread=not sink.global_committer)
            if self._spread:
                _check_not_sole(sink, committer)
        elif first is not None:
            self._append(CommitterOperator(sink, create=first), "committer", "committer", spread=False)
            first = None
        for stage in sink.post_commit_stages() if isinstance(sink, WithPostCommitStages) else ():
            self._append_on_commit(partial(StageCommitter, stage), f"post-commit-{stage.name}", stage)
        if first is not None:
            self._append_on_commit(first, "global-committer", None)

    def _append_on_commit(
        self, create: Callable[[], Committer], suffix: str, stage: CommittableStage | None
    ) -> None:
        spread = stage is not None and stage.parallel
        operator = OnCommitOperator(self._sink, create, single_producer=spread)
        name = "global committer" if stage is None else stage.name
        self._append(operator, suffix, name, spread=spread, commits_as=suffix)

    def _append(
        self, operator: SinkOperator, suffix: str, name: str, *, spread: bool, commits_as: str = ""
    ) -> None:
        """Appends an operator: one subtask for each writer (`spread`), or one for all."""
        ship = Ship.FORWARD if spread or not self._spread else Ship.GLOBAL
        inputs = [[Port(self._last.id)]]
        node = self._builder.add(
            f"{self._sink.name} {name}", operator, inputs, stateful=True, ship=ship, committables=True
        )
        node.sink = self._writer.id
        self._spread = self._spread and spread
        node.records_positions = self._records_positions(operator)
        if self._spread:
            self._builder.follows[node.id] = self._writer.id
        else:
            node.parallelism = 1
        self._operators.append((operator, commits_as))
        self._behind.append((node, suffix, name))
        self._last = node

    def _records_positions(self, operator: SinkOperator) -> bool:
        """Whether the operator records the positions of sources with its commits. Of several committers each
        has a part of the rows, so none can say how far all of them go."""
        commits = isinstance(operator, CommitterOperator) and not self._spread
        return commits and isinstance(self._sink, RecordsPositions) and self._sink.records_positions

    def _commit_as(self, uid: str) -> None:
        """It identifies the sink's commits, so writer and committer must have the same one."""
        if self._check is not None:
            self._check.sink_uid = OperatorUid(uid)
        for operator, suffix in self._operators:
            operator.sink_uid = OperatorUid(f"{uid}-{suffix}" if suffix else uid)
            operator.belongs_to = OperatorUid(uid)

    def _node(self, what: str) -> StreamNode:
        return self._writer

    def uid(self, uid: str) -> Self:
        """Stable identity of the sink: of its state, and of its commits in the external system. The
        committer's operator has this uid with ``-committer`` appended, and so on.

        Raises:
            ConfigError: another operator has it.
        """
        super().uid(uid)
        if self._checked is not None:
            self._checked.uid(f"{uid}-rows")
        for node, suffix, _ in self._behind:
            self._builder.set_uid(node, f"{uid}-{suffix}")
        self._commit_as(uid)
        return self

    def name(self, name: str) -> Self:
        super().name(name)
        if self._checked is not None:
            self._checked.name(f"{name} rows")
        for node, _, end in self._behind:
            node.name = f"{name} {end}"
        return self

    def dead_letters_to(self, sink: Sink) -> DataStreamSink:
        """Writes rows that the target would refuse to `sink`, with the reason; see
        `DataStream.dead_letters_to`.

        Raises:
            ConfigError: it is not ``sink_to(…, on_error="dead-letter")``.
        """
        if self._checked is None:
            raise ConfigError(
                f"dead_letters_to: sink {self._sink.name!r} sends no dead letters; use "
                'sink_to(…, on_error="dead-letter")'
            )
        return self._checked.dead_letters_to(sink)

    def slot_sharing_group(self, group: str | SlotSharingGroup) -> Self:
        """Writer and committer never share a slot with operators of another group."""
        super().slot_sharing_group(group)
        for node, _, _ in self._behind:
            node.slot_sharing_group = self._writer.slot_sharing_group
        return self

    def disable_chaining(self) -> Self:
        """Writer and committer get a task of their own each."""
        super().disable_chaining()
        for node, _, _ in self._behind:
            node.chaining = self._writer.chaining
        return self


def _check_not_sole(sink: Sink, committer: Committer) -> None:
    """Raises ConfigError: each writer has such a committer, and there must be one."""
    if isinstance(committer, SoleCommitter) and committer.is_sole:
        kind = type(sink).__name__
        raise ConfigError(
            f"sink_to: {kind} (sink {sink.name!r}) has a committer for each writer, but a "
            f"{type(committer).__name__} commits a checkpoint for all writers, so the rows of all but one "
            f"would be lost: let global_committer of {kind} be True, or let its create_committer return a "
            "committer that can stand next to others"
        )


def check_sends_dead_letters(builder: GraphBuilder, node: StreamNode) -> None:
    """Raises ConfigError unless `node` sends what it cannot process to a side output."""
    if (node.id, DEAD_LETTERS_TAG) not in builder.schemas:
        raise ConfigError(
            f"dead_letters_to: {node.name!r} sends no dead letters; use it on an operator that does, such as "
            'map(..., on_error="dead-letter"), or on a source, such as KafkaSource(..., '
            'on_bad_record="dead-letter")'
        )

"""The operators of one task, and the rows' way through them by plain calls.

Nodes form a tree with the head at index 0 and consumers behind their producer, so "tail -> head" is
from the last index to the first. Every call of an operator is fenced: what it raises becomes an error
that names the operator and the subtask, with the user's exception as its cause.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from unistream.base.errors import ProtocolError, UnistreamError, UserCodeError
from unistream.base.ids import CheckpointId, EdgeId, OperatorUid
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.model.chain import Chain, ChainNode, EdgeOutput, LocalOutput, SortsInput
from unistream.model.elements import Batch, EndOfBucket, Event, Watermark, WatermarkStatus
from unistream.model.positions import SourcePositions
from unistream.model.snapshot import OperatorSnapshot, OperatorState
from unistream.port.operator import CommitPermit, Operator, OperatorContext
from unistream.worker.exchange import OutputPartition
from unistream.worker.task.failures import fails_the_task, shown_row
from unistream.worker.task.source_operator import SourceOperator

_log = logging.getLogger(__name__)


class ErrorBoundary(Protocol):
    """Calls an action of an operator; an error that it raises names the operator and what it was doing."""

    def __call__(self, action: Callable[[], None], doing: str = ...) -> None: ...


ContextOf = Callable[[OperatorUid, str, ErrorBoundary], OperatorContext]
"""(uid, name, how to call an action of it) -> context."""


class OperatorFailed(UserCodeError):
    """An operator raised; the message names it, its subtask and the row, `__cause__` is what it raised."""


class NodeOutput:
    """`port.operator.Output` of one node: calls the next operators, feeds the exchanges."""

    def __init__(self) -> None:
        self._main: list[Callable[[Batch], None]] = []
        self._side: dict[str, list[Callable[[Batch], None]]] = {}
        self._nodes: list[_Node] = []
        self._partitions: list[OutputPartition] = []
        self.watermark = MIN_WATERMARK  # the last that was emitted
        self._idle = False

    def to_node(self, tag: str | None, node: _Node) -> None:
        self._rows_to(tag, node.process_main)
        if node not in self._nodes:
            self._nodes.append(node)

    def to_partition(self, tag: str | None, partition: OutputPartition) -> None:
        self._rows_to(tag, partition.emit)
        if partition not in self._partitions:
            self._partitions.append(partition)

    def _rows_to(self, tag: str | None, consumer: Callable[[Batch], None]) -> None:
        (self._main if tag is None else self._side.setdefault(tag, [])).append(consumer)

    def emit(self, batch: Batch) -> None:
        if batch.num_rows:
            for consumer in self._main:
                consumer(batch)

    def emit_side(self, tag: str, batch: Batch) -> None:
        if batch.num_rows:
            for consumer in self._side.get(tag, ()):
                consumer(batch)

    def emit_watermark(self, timestamp: int) -> None:
        if timestamp <= self.watermark:
            return
        if timestamp == MAX_WATERMARK:  # an idle channel would ignore the end of time
            self.emit_watermark_status(idle=False)
        self.watermark = timestamp
        for node in self._nodes:
            node.process_watermark(timestamp)
        self._broadcast(Watermark(timestamp))

    def emit_watermark_status(self, idle: bool) -> None:
        if idle == self._idle:
            return
        self._idle = idle
        for node in self._nodes:
            node.process_watermark_status(idle)
        self._broadcast(WatermarkStatus(idle))

    def _broadcast(self, event: Event) -> None:
        for partition in self._partitions:
            partition.broadcast(event)


class _Node:
    """One operator with its output and its fence."""

    def __init__(self, node: ChainNode, operator: Operator, where: str) -> None:
        self.uid = node.uid
        self.name = node.name
        self.operator = operator
        self.output = NodeOutput()
        self._where = f"operator {node.name!r} (uid {node.uid!r}), {where}"

    def process_main(self, batch: Batch) -> None:
        self.process_batch(batch, 0)

    def process_batch(self, batch: Batch, input_index: int) -> None:
        try:  # not `fence`: a context manager for each batch and operator shows in profiles
            self.operator.process_batch(batch, input_index)
        except BaseException as error:
            self._raise_located("processing rows", error, batch)
            raise

    def call(self, action: Callable[[], None], doing: str = "firing a timer") -> None:
        with self.fence(doing):
            action()

    def process_watermark(self, timestamp: int) -> None:
        with self.fence("processing a watermark"):
            self.operator.process_watermark(timestamp)
        if self.operator.forwards_watermarks:
            self.output.emit_watermark(timestamp)

    def process_watermark_status(self, idle: bool) -> None:
        with self.fence("processing a watermark status"):
            self.operator.process_watermark_status(idle)
        if self.operator.forwards_watermarks:
            self.output.emit_watermark_status(idle)

    @contextmanager
    def fence(self, doing: str) -> Iterator[None]:
        """An error that the operator raises inside names it; one that already does is raised unchanged."""
        try:
            yield
        except BaseException as error:
            self._raise_located(doing, error)
            raise

    def _raise_located(self, doing: str, error: BaseException, batch: Batch | None = None) -> None:
        """Returns if `error` itself is to be raised."""
        located = self.located(doing, error, batch) if fails_the_task(error) else error
        if located is not error:
            raise located from error

    def located(self, doing: str, error: BaseException, batch: Batch | None = None) -> Exception:
        """`error` with the operator, and the row of `batch`, in its message. Errors of our own tree keep
        their class, because it says what the caller must do."""
        if isinstance(error, OperatorFailed):
            return error
        if isinstance(error, UserCodeError):
            text = f"{error}{shown_row(batch, error.row)}"
            return OperatorFailed(text if text.startswith("operator ") else f"{self._where}: {text}")
        if isinstance(error, UnistreamError):
            if not getattr(error, "__notes__", None):
                error.add_note(f"in {self._where}, {doing}")
            return error
        return OperatorFailed(f"{self._where}, {doing}: {type(error).__name__}: {error}")


class OperatorChain:
    """The operators of one task, called in Flink's order.

    Args:
        operators: Of the nodes of `chain`; that of a source is made from its `SourceOperatorSpec`.
        where: "subtask 1/4" and the like, for errors.
    """

    def __init__(
        self,
        chain: Chain,
        operators: Sequence[Operator],
        partitions: Mapping[EdgeId, OutputPartition],
        where: str,
    ) -> None:
        self._nodes = [_Node(n, o, where) for n, o in zip(chain.nodes, operators, strict=True)]
        for node, spec in zip(self._nodes, chain.nodes, strict=True):
            for output in spec.outputs:
                match output:
                    case LocalOutput(target=target, tag=tag):
                        node.output.to_node(tag, self._nodes[target])
                    case EdgeOutput(edge=edge, tag=tag):
                        node.output.to_partition(tag, partitions[edge])
        self._closed = False

    def setup(self, context_of: ContextOf) -> None:
        for node in reversed(self._nodes):
            with node.fence("setting up"):
                node.operator.setup(context_of(node.uid, node.name, node.call), node.output)

    def open(self, state_of: Callable[[OperatorUid], OperatorState]) -> None:
        """Tail -> head: initialize_state and open, one operator after the other."""
        for node in reversed(self._nodes):
            with node.fence("restoring its state"):
                node.operator.initialize_state(state_of(node.uid))
            with node.fence("opening"):
                node.operator.open()

    def process_batch(self, batch: Batch, input_index: int) -> None:
        self._nodes[0].process_batch(batch, input_index)

    def poll(self, source: SourceOperator) -> bool:
        with self._nodes[0].fence("reading"):
            return source.poll()

    def process_watermark(self, timestamp: int) -> None:
        self._nodes[0].process_watermark(timestamp)

    def process_watermark_status(self, idle: bool) -> None:
        self._nodes[0].process_watermark_status(idle)

    def end_bucket(self, ended: EndOfBucket) -> None:
        """Ends a bucket of the only input of an operator that sorts it."""
        operator = self._nodes[0].operator
        if not isinstance(operator, SortsInput):
            raise ProtocolError(f"{ended} for an operator that does not sort its rows")
        with self._nodes[0].fence("processing rows"):
            operator.end_bucket(ended.number, ended.count)

    def end_input(self, input_index: int) -> None:
        with self._nodes[0].fence("ending an input"):
            self._nodes[0].operator.end_input(input_index)

    def finish(self, quiesce: Callable[[OperatorUid], None], *, again: bool = False) -> None:
        """Head -> tail, after all inputs of the head have ended: end_input of each operator behind it, then
        `quiesce` for its processing-time timers, then finish. `again`: it was called before the snapshot that
        they are restored from, so it is left out."""
        for node in self._nodes:
            if node is not self._nodes[0]:
                with node.fence("ending an input"):
                    node.operator.end_input(0)
            quiesce(node.uid)
            if not again:
                with node.fence("finishing"):
                    node.operator.finish()

    def prepare_snapshot_pre_barrier(self, checkpoint_id: CheckpointId) -> None:
        for node in self._nodes:
            with node.fence(f"preparing checkpoint {checkpoint_id}"):
                node.operator.prepare_snapshot_pre_barrier(checkpoint_id)

    def snapshot_state(self, checkpoint_id: CheckpointId) -> dict[OperatorUid, OperatorSnapshot]:
        """Tail -> head; by reference. Each with the watermark that it has emitted."""
        snapshots: dict[OperatorUid, OperatorSnapshot] = {}
        for node in reversed(self._nodes):
            with node.fence(f"taking its part of checkpoint {checkpoint_id}"):
                taken = node.operator.snapshot_state(checkpoint_id)
            snapshots[node.uid] = replace(taken, watermark=node.output.watermark)
        return snapshots

    def notify_checkpoint_complete(
        self, permit: CommitPermit, positions: Mapping[OperatorUid, tuple[SourcePositions, ...]]
    ) -> None:
        """Tail -> head; all are notified, then the first error is raised. `positions`: of each committer."""

        def notify(node: _Node) -> None:
            recorded = positions.get(node.uid, ())
            own = replace(permit, positions=recorded) if recorded else permit
            node.operator.notify_checkpoint_complete(own)

        self._call_all(f"committing checkpoint {permit.checkpoint_id}", notify)

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None:
        doing = f"being notified that checkpoint {checkpoint_id} was aborted"
        self._call_all(doing, lambda node: node.operator.notify_checkpoint_aborted(checkpoint_id))

    def close(self) -> None:
        """Tail -> head, each once, including those that were never opened; then the first error is raised."""
        if self._closed:
            return
        self._closed = True
        self._call_all("closing", lambda node: node.operator.close())

    def located(self, uid: OperatorUid, doing: str, error: BaseException) -> Exception:
        """An error of an operator that was raised elsewhere, with the operator in its message."""
        node = next(node for node in self._nodes if node.uid == uid)
        located = node.located(doing, error)
        if located is not error:
            located.__cause__ = error
        return located

    def _call_all(self, doing: str, call: Callable[[_Node], None]) -> None:
        first: Exception | None = None
        for node in reversed(self._nodes):
            try:
                with node.fence(doing):
                    call(node)
            except Exception as error:
                if first is None:
                    first = error
                else:
                    _log.warning(
                        "event=operator_failed_too operator=%s doing=%s", node.name, doing, exc_info=error
                    )
        if first is not None:
            raise first


class FinishedChain(OperatorChain):
    """The chain of a vertex that had finished before the checkpoint that it is restored from: it has no
    operators, and forwards only the end of event time (the task handles the end of data and barriers)."""

    def __init__(self, partitions: Sequence[OutputPartition]) -> None:
        super().__init__(Chain(nodes=()), (), {}, "")
        self._output = NodeOutput()
        for partition in partitions:
            self._output.to_partition(None, partition)

    def process_batch(self, batch: Batch, input_index: int) -> None:
        raise ProtocolError("rows arrived for a task that was restored as finished")

    def process_watermark(self, timestamp: int) -> None:
        self._output.emit_watermark(timestamp)

    def process_watermark_status(self, idle: bool) -> None:
        """Does nothing: only MAX_WATERMARK follows."""

    def end_bucket(self, ended: EndOfBucket) -> None:
        """It has no rows."""

    def end_input(self, input_index: int) -> None:
        """Does nothing: the input had ended before."""

"""The operators of a sink before its committer: the writer, and stages; and what all operators of a sink
share."""

from __future__ import annotations

from typing import Final

from unistream.base.errors import ProtocolError
from unistream.base.ids import CheckpointId, OperatorUid
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.model.elements import Batch
from unistream.model.snapshot import ListMode, OperatorListState, OperatorSnapshot, OperatorState
from unistream.operator.common import BaseOperator
from unistream.operator.sink.committables import Committables, announce
from unistream.port.line import KeepsLine
from unistream.port.sink import (
    CommittableFunction,
    CommittableStage,
    Sink,
    SinkContext,
    SinkWriter,
    is_transactional,
)

WRITER_STATE: Final = "writer-state"


class SinkOperator(BaseOperator):
    """What the operators of a sink share: the sink, and the identity under which it commits.

    Args:
        sink_uid: The same for writer and committer; None: the operator's own uid.

    Attributes:
        belongs_to: Uid of the sink that consists of several operators; None: it has no others.
    """

    def __init__(self, sink: Sink, sink_uid: OperatorUid | None = None) -> None:
        self._sink = sink
        self.sink_uid = sink_uid
        self.belongs_to: OperatorUid | None = None

    @property
    def sink(self) -> Sink:
        return self._sink

    def _sink_context(self, state: OperatorState) -> SinkContext:
        context = self.context
        return SinkContext(
            job=context.job,
            lineage=context.lineage,
            sink_uid=self.sink_uid or context.uid,
            attempt=context.attempt,
            index=context.index,
            parallelism=context.parallelism,
            restored=state.checkpoint_id,
            metrics=context.metrics,
            checkpointing=context.checkpointing,
            exclusive=context.exclusive,
            predecessor=state.job,
        )

    def _announce(self, checkpoint_id: int, payloads: list[bytes], watermark: int | None) -> None:
        context = self.context
        self.output.emit(
            Batch(announce(checkpoint_id, context.index, context.parallelism, payloads, watermark))
        )


class SinkWriterOperator(SinkOperator):
    """Rows in, committables out, if the sink has a committer.

    With them goes the watermark of its input. At the end of input it stays what it was: a stream that was
    drained may go on, and more rows of the same hour come.
    """

    _writer: SinkWriter | None = None
    _transactional = False
    _ended = False
    _idle = False
    _last_checkpoint = 0
    _watermark = MIN_WATERMARK

    def initialize_state(self, state: OperatorState) -> None:
        self._last_checkpoint = state.checkpoint_id or 0
        self._transactional = is_transactional(self._sink)
        is_first = state.checkpoint_id is None and self.context.index == 0
        if is_first and isinstance(self._sink, KeepsLine):
            self._sink.check_new_line(self.context.lineage)  # a bounded job would commit after all its work
        self._writer = self._sink.create_writer()
        self._writer.open(self._sink_context(state), state.lists.get(WRITER_STATE, []))

    def process_batch(self, batch: Batch, input_index: int) -> None:
        if self._ended:
            raise ProtocolError(f"sink {self._sink.name!r}: rows after the end of input")
        self._open_writer().write(batch)

    def process_watermark(self, timestamp: int) -> None:
        if timestamp < MAX_WATERMARK:
            self._watermark = timestamp

    def process_watermark_status(self, idle: bool) -> None:
        self._idle = idle

    def end_input(self, input_index: int) -> None:
        if not self._ended:
            self._ended = True
            self._prepare(CheckpointId(self._last_checkpoint + 1), end_of_input=True)

    def prepare_snapshot_pre_barrier(self, checkpoint_id: CheckpointId) -> None:
        self._last_checkpoint = checkpoint_id
        if not self._ended:
            self._prepare(checkpoint_id, end_of_input=False)

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        items = tuple(self._open_writer().snapshot_state(checkpoint_id))
        return OperatorSnapshot(
            lists={WRITER_STATE: OperatorListState(ListMode.SPLIT, items)} if items else {}
        )

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _prepare(self, checkpoint_id: CheckpointId, *, end_of_input: bool) -> None:
        writer = self._open_writer()
        writer.flush(end_of_input)
        if self._transactional:
            made = list(writer.prepare_commit(checkpoint_id))
            self._announce(checkpoint_id, made, None if self._idle else self._watermark)

    def _open_writer(self) -> SinkWriter:
        assert self._writer is not None, "initialize_state comes first"
        return self._writer


class CommittableStageOperator(SinkOperator):
    """One subtask of a stage of `WithPreCommitStages`: committables of one checkpoint in, committables out.

    When barrier n arrives, everything of checkpoint n has arrived: the stage processes it, before the barrier
        is
    forwarded. No state.
    """

    _function: CommittableFunction | None = None

    def __init__(self, sink: Sink, stage: CommittableStage, sink_uid: OperatorUid | None = None) -> None:
        super().__init__(sink, sink_uid)
        self._stage = stage
        self._committables = Committables(f"{sink.name} {stage.name}")

    def initialize_state(self, state: OperatorState) -> None:
        self._function = self._stage.create()
        self._function.open(self._sink_context(state))

    def process_batch(self, batch: Batch, input_index: int) -> None:
        self._committables.add(batch.records)

    def end_input(self, input_index: int) -> None:
        self._process(self._committables.newest)

    def prepare_snapshot_pre_barrier(self, checkpoint_id: CheckpointId) -> None:
        self._process(checkpoint_id)

    def close(self) -> None:
        if self._function is not None:
            self._function.close()

    def _process(self, up_to: int) -> None:
        assert self._function is not None, "initialize_state comes first"
        due = self._committables.due(up_to)
        for one in due:
            made = self._function.process(one.checkpoint_id, one.payloads) if one.payloads else ()
            self._announce(one.checkpoint_id, list(made), one.watermark)
        self._committables.remove(one.checkpoint_id for one in due)

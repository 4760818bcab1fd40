"""The two operators of a sink: a writer that stages, and a committer that makes visible.

Committables of checkpoint n leave the writer before barrier n, lie in the committer's snapshot n, and are
committed when the manifest of n (or of a later one) is durable. Those of the end of input carry the id of
the checkpoint that must come next. On the wire between the two: one summary row for each writer
and checkpoint, also when there is nothing to commit, and a row for each committable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import pyarrow as pa

from unistream.base.config import COMMITTER_RETRIES, Configuration
from unistream.base.crash_points import crash_point
from unistream.base.errors import CorruptSnapshot, ProtocolError, Transient
from unistream.base.ids import CheckpointId, OperatorUid
from unistream.model.elements import Batch
from unistream.model.snapshot import ListMode, ListState, OperatorSnapshot, OperatorState
from unistream.operator.base import BaseOperator
from unistream.port.operator import CommitPermit
from unistream.port.sink import (
    CommitOutcome,
    CommitRequest,
    CommitResult,
    Committer,
    Sink,
    SinkContext,
    SinkWriter,
)

COMMITTABLES: Final = pa.schema(
    [
        pa.field("checkpoint_id", pa.int64(), nullable=False),
        pa.field("subtask", pa.int32(), nullable=False),
        pa.field("count", pa.int32()),  # of a summary: how many committables it announces
        pa.field("payload", pa.binary()),  # of a committable
    ]
)
WRITER_STATE: Final = "writer-state"
COMMITTER_STATE: Final = "committables"


class _SinkOperator(BaseOperator):
    """What writer and committer share: the sink, and the identity it commits under.

    Args:
        sink_uid: The same for both; None: the operator's own uid.
    """

    def __init__(self, sink: Sink, sink_uid: OperatorUid | None = None) -> None:
        self._sink = sink
        self.sink_uid = sink_uid

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
        )


class SinkWriterOperator(_SinkOperator):
    """Rows in, committables out; nothing out if the sink has no committer."""

    _writer: SinkWriter | None = None
    _transactional = False
    _ended = False
    _last_checkpoint = 0

    def initialize_state(self, state: OperatorState) -> None:
        self._last_checkpoint = state.checkpoint_id or 0
        committer = self._sink.create_committer()
        self._transactional = committer is not None
        self._writer = self._sink.create_writer()
        self._writer.open(self._sink_context(state), state.lists.get(WRITER_STATE, []))

    def process_batch(self, batch: Batch, input_index: int) -> None:
        if self._ended:
            raise ProtocolError(f"sink {self._sink.name!r}: rows after the end of input")
        self._open_writer().write(batch)

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
        return OperatorSnapshot(lists={WRITER_STATE: ListState(ListMode.SPLIT, items)} if items else {})

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _prepare(self, checkpoint_id: CheckpointId, *, end_of_input: bool) -> None:
        writer = self._open_writer()
        writer.flush(end_of_input)
        if self._transactional:
            payloads = list(writer.prepare_commit(checkpoint_id))
            self.output.emit(Batch(_announce(checkpoint_id, self.context.index, payloads)))

    def _open_writer(self) -> SinkWriter:
        assert self._writer is not None, "initialize_state comes first"
        return self._writer


class _Pending(msgspec.Struct):
    """What one writer prepared for one checkpoint. `announced` None: its summary is still to come."""

    checkpoint_id: int
    subtask: int
    announced: int | None = None
    payloads: list[bytes] = []


class CommitterOperator(_SinkOperator):
    """Committables in; commits them when a durable manifest lists them."""

    _committer: Committer | None = None

    def __init__(self, sink: Sink, sink_uid: OperatorUid | None = None) -> None:
        super().__init__(sink, sink_uid)
        self._pending: dict[tuple[int, int], _Pending] = {}
        self._restored: list[_Pending] = []

    def initialize_state(self, state: OperatorState) -> None:
        committer = self._sink.create_committer()
        assert committer is not None, f"sink {self._sink.name!r} has no committer"
        self._committer = committer
        committer.open(self._sink_context(state))
        if state.checkpoint_id is not None:
            self._restored = [p for item in state.lists.get(COMMITTER_STATE, []) for p in _decode(item)]
            self._commit(self._permit(state.checkpoint_id))

    def process_batch(self, batch: Batch, input_index: int) -> None:
        for row in batch.records.to_pylist():
            self._collect(row["checkpoint_id"], row["subtask"], row["count"], row["payload"])

    def end_input(self, input_index: int) -> None:
        if not self.context.checkpointing and self._pending:
            crash_point("sink.before_commit")
            self._commit(self._permit(CheckpointId(max(checkpoint for checkpoint, _ in self._pending))))
            crash_point("sink.committed")

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        pending = [*self._restored, *self._pending.values()]
        items = (msgspec.msgpack.encode(pending),) if pending else ()
        return OperatorSnapshot(lists={COMMITTER_STATE: ListState(ListMode.SPLIT, items)} if items else {})

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        self._commit(permit)

    def close(self) -> None:
        if self._committer is not None:
            self._committer.close()

    def _permit(self, checkpoint_id: CheckpointId) -> CommitPermit:
        context = self.context
        return CommitPermit(lineage=context.lineage, checkpoint_id=checkpoint_id, epoch=context.epoch)

    def _collect(
        self, checkpoint_id: int, subtask: int, announced: int | None, payload: bytes | None
    ) -> None:
        key = (checkpoint_id, subtask)
        pending = self._pending.setdefault(key, _Pending(checkpoint_id, subtask))
        what = f"sink {self._sink.name!r}, checkpoint {checkpoint_id}, writer {subtask}"
        if payload is not None:
            pending.payloads.append(payload)
        elif pending.announced is not None:
            raise ProtocolError(f"{what}: committables were announced twice")
        else:
            pending.announced = announced
        if pending.announced is not None and len(pending.payloads) > pending.announced:
            raise ProtocolError(f"{what}: more committables than the {pending.announced} announced")

    def _commit(self, permit: CommitPermit) -> None:
        """Everything up to the permit, ascending, one call per checkpoint."""
        due: dict[int, list[_Pending]] = {}
        for pending in [*self._restored, *self._pending.values()]:
            if pending.checkpoint_id <= permit.checkpoint_id:
                due.setdefault(pending.checkpoint_id, []).append(pending)
        for checkpoint_id in sorted(due):
            self._check_complete(due[checkpoint_id])
            payloads = tuple(p for pending in due[checkpoint_id] for p in pending.payloads)
            if payloads:
                self._commit_request(permit, CommitRequest(CheckpointId(checkpoint_id), payloads))
            self._restored = [p for p in self._restored if p.checkpoint_id != checkpoint_id]
            self._pending = {k: p for k, p in self._pending.items() if p.checkpoint_id != checkpoint_id}

    def _check_complete(self, of_checkpoint: Sequence[_Pending]) -> None:
        for pending in of_checkpoint:
            if pending.announced != len(pending.payloads):
                raise ProtocolError(
                    f"sink {self._sink.name!r}, checkpoint {pending.checkpoint_id}, "
                    f"writer {pending.subtask}: {len(pending.payloads)} committables have arrived of "
                    f"{pending.announced} announced"
                )

    def _commit_request(self, permit: CommitPermit, request: CommitRequest) -> None:
        assert self._committer is not None, "initialize_state comes first"
        retries = Configuration(self.context.config).get(COMMITTER_RETRIES)
        for _ in range(retries + 1):
            result = self._committer.commit(permit, request)
            if result.outcome is not CommitOutcome.RETRY:
                self._report(request, result)
                return
        raise Transient(
            f"sink {self._sink.name!r}: failed to commit {len(request.committables)} committables of "
            f"checkpoint {request.checkpoint_id} in {retries + 1} attempts ({COMMITTER_RETRIES.key})"
        )

    def _report(self, request: CommitRequest, result: CommitResult) -> None:
        uid = self.sink_uid or self.context.uid
        self.context.report_commit(uid, request.checkpoint_id, result.rows, result.table_version)
        name = "alreadyCommitted" if result.outcome is CommitOutcome.ALREADY_COMMITTED else "committed"
        self.context.metrics.add(f"{name}Committables", len(request.committables))


def _announce(checkpoint_id: CheckpointId, subtask: int, payloads: list[bytes]) -> pa.RecordBatch:
    rows = len(payloads) + 1
    return pa.RecordBatch.from_arrays(
        [
            pa.array([checkpoint_id] * rows, pa.int64()),
            pa.array([subtask] * rows, pa.int32()),
            pa.array([len(payloads)] + [None] * len(payloads), pa.int32()),
            pa.array([None, *payloads], pa.binary()),
        ],
        schema=COMMITTABLES,
    )


def _decode(item: bytes) -> list[_Pending]:
    try:
        return msgspec.msgpack.decode(item, type=list[_Pending])
    except msgspec.MsgspecError as error:
        raise CorruptSnapshot(f"a restored committable cannot be read: {error}") from error

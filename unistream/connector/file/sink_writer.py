"""Buffers the rows of each bucket and writes them as staged files.

State: (name, next counter). Files staged under a name with that counter or a later one were written after the
restored checkpoint, by an attempt that was killed: their rows are replayed, so they are removed.

A name is a number that no two writers have at the same time, also after rescaling: a writer continues one of
its restored names, and ends the others. (If it were the index of the subtask, ending a name would remove
files that another subtask writes under it by then.) A writer without restored state derives a name from the
restored checkpoint and its index. Under it only attempts from that checkpoint can have written; files of a
finished subtask have that subtask's own name, and are still to be committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import pyarrow as pa

from unistream.base.crash_points import crash_point
from unistream.base.errors import UNDECODABLE, CorruptSnapshot, UserCodeError
from unistream.base.ids import CheckpointId
from unistream.base.limits import PARALLELISM_MAX
from unistream.connector.common import PartitionBuffers, count_sent
from unistream.connector.file.partition_columns import remember
from unistream.connector.file.sink_format import SUFFIXES, BucketAssigner, Format, check_schema, write_table
from unistream.connector.file.sink_parts import (
    FileCommittable,
    PartFile,
    counter_of,
    part_name,
    staging_owner,
)
from unistream.connector.file.sink_stage import FileStage
from unistream.model.elements import Batch
from unistream.port.sink import SinkContext


class FileWriterState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a writer. `subtask`: the writer's name, at first the index of its subtask; `counter`: of
    its next file."""

    subtask: int
    counter: int
    v: int = 1


_STATE: Final = msgspec.msgpack.Decoder(FileWriterState)


class FileSinkWriter:
    """The `SinkWriter` of one subtask.

    Args:
        target_bytes: Rows of a bucket are written to a file when they take this much memory.
    """

    def __init__(
        self, *, root: str, stage: FileStage, file_format: Format, buckets: BucketAssigner, target_bytes: int
    ) -> None:
        self._root = root
        self._stage = stage
        self._format: Format = file_format
        self._buckets = buckets
        self._context: SinkContext | None = None
        self._name = 0
        self._owner = ""
        self._counter = 0
        self._buffers = PartitionBuffers[str](target_bytes, self._write_out, cuts=True)
        self._staged: list[PartFile] = []
        self._fitting: pa.Schema | None = None

    def open(self, context: SinkContext, restored: Sequence[bytes]) -> None:
        """Removes the files that killed attempts have left under the restored names."""
        self._context = context
        states = [_decode(content) for content in restored]
        states = states or [FileWriterState(subtask=_new_name(context), counter=0)]
        own = min(states, key=lambda state: state.subtask)
        self._name, self._counter = own.subtask, own.counter
        self._owner = staging_owner(context.job, context.sink_uid, own.subtask)
        if context.attempt.attempt == 0 or not context.exclusive:
            return
        for state in states:
            self._remove_orphans(staging_owner(context.job, context.sink_uid, state.subtask), state.counter)

    def write(self, batch: Batch) -> None:
        """Raises ConfigError for an unsupported schema, if none was known before the job ran."""
        if not batch.num_rows:
            return
        schema = batch.records.schema
        if self._fitting is None or not schema.equals(self._fitting):
            check_schema(schema, self._format, self._buckets)
            self._fitting = schema
        for bucket, records in self._buckets.split(batch):
            self._buffers.add(bucket, records)

    def flush(self, end_of_input: bool) -> None:
        self._buffers.flush()

    def prepare_commit(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        assert not self._buffers, "prepare_commit without flush"
        if not self._staged:
            return ()
        committable = FileCommittable(root=self._root, files=tuple(self._staged))
        self._staged = []
        return (msgspec.msgpack.encode(committable),)

    def snapshot_state(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        assert self._context is not None, "the writer is not open"
        state = FileWriterState(subtask=self._name, counter=self._counter)
        return (msgspec.msgpack.encode(state),)

    def close(self) -> None:
        for file in self._staged:
            self._stage.discard(file)
        self._stage.tidy()
        self._staged = []
        self._buffers.clear()

    def _write_out(self, bucket: str, batches: list[pa.RecordBatch]) -> None:
        try:
            table = pa.Table.from_batches(batches)
        except pa.ArrowInvalid as error:
            raise UserCodeError(f"file sink: the stream's schema changed within a file: {error}") from error
        name = part_name(self._owner, self._counter, SUFFIXES[self._format])
        self._counter += 1
        assert self._fitting is not None, "rows without a schema"
        remembered = remember(self._fitting, self._buckets.columns)
        staged = self._stage.write(
            bucket, name, table.num_rows, lambda file: write_table(table, file, self._format, remembered)
        )
        self._staged.append(staged)
        crash_point("file.staged")
        assert self._context is not None, "write before open"
        count_sent(self._context.metrics, table.num_rows, staged.size)

    def _remove_orphans(self, owner: str, counter: int) -> None:
        for file in list(self._stage.staged(owner)):
            found = counter_of(owner, file.name)
            if found is not None and found >= counter:
                self._stage.discard(file)


def _new_name(context: SinkContext) -> int:
    """A name that is different from all earlier ones, and the same for each attempt from one checkpoint."""
    return context.index + (0 if context.restored is None else (context.restored + 1) * PARALLELISM_MAX)


def _decode(content: bytes) -> FileWriterState:
    try:
        return _STATE.decode(content)
    except UNDECODABLE as error:
        raise CorruptSnapshot(f"the state of a file sink's writer is unreadable: {error}") from error

"""Buffers the rows of each bucket and writes them as files that readers do not see yet.

State: (subtask, next counter). What lies staged under a subtask's name with that counter or a later one was
written behind the restored checkpoint, by an attempt that was killed: its rows come again, so it is removed.
Of a subtask without state there (it had finished, or is new) nothing is removed: a commit that is still to
come may list it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unistream.base.crash_points import crash_point
from unistream.base.errors import CorruptSnapshot, UserCodeError
from unistream.base.ids import CheckpointId
from unistream.base.limits import MIB
from unistream.connector.file_sink_stage import (
    FileCommittable,
    FileStage,
    PartFile,
    counter_of,
    part_name,
    staging_owner,
)
from unistream.connector.partitions import by_partition, partition_folder
from unistream.model.elements import Batch
from unistream.port.sink import SinkContext

Format = Literal["parquet", "json"]
SUFFIXES: Final[dict[Format, str]] = {"parquet": ".parquet", "json": ".jsonl"}
BUFFERED_BYTES_MAX: Final = 128 * MIB  # of all buckets together; then the largest is written out
ROW_GROUP_ROWS: Final = 1 << 20
JSON_CHUNK_ROWS: Final = 1 << 14
_JSON: Final = msgspec.json.Encoder()
_TIME: Final = "__time"


class FileWriterState(msgspec.Struct, frozen=True, kw_only=True):
    """`counter`: of the next file of `subtask`."""

    subtask: int
    counter: int
    v: int = 1


_STATE: Final = msgspec.msgpack.Decoder(FileWriterState)


class Buckets:
    """Which folder a row goes to.

    Args:
        columns: Their values name the folder, as ``column=value/``; they are not in the files.
        time_format: `strftime` of a time, for another level of folders.
        time_column: That time; None: the event time of the rows.
    """

    def __init__(self, columns: tuple[str, ...], time_format: str | None, time_column: str | None) -> None:
        self._columns = columns
        self._time_format = time_format
        self._time_column = time_column

    def split(self, batch: Batch) -> list[tuple[str, pa.RecordBatch]]:
        """The rows of each bucket, in their order. Raises UserCodeError for rows without a time."""
        records, names = batch.records, self._columns
        if self._time_format is not None:
            records = records.append_column(_TIME, pc.strftime(self._times(batch), format=self._time_format))
            names = (*names, _TIME)
        return [(self._folder(key), rows) for key, rows in by_partition(records, names)]

    def _times(self, batch: Batch) -> pa.Array:
        if self._time_column is not None:
            times = batch.records.column(self._time_column)
        elif batch.timestamps is not None:
            times = batch.timestamps.cast(pa.timestamp("ms"))
        else:
            raise UserCodeError("file sink: bucket_by_time needs rows with event time, or a time_column")
        if times.null_count:
            raise UserCodeError("file sink: a row has no time, so it has no bucket")
        return times

    def _folder(self, key: tuple[str | None, ...]) -> str:
        folder = partition_folder(dict(zip(self._columns, key, strict=False)))
        return folder if self._time_format is None else f"{folder}{str(key[-1]).strip('/')}/"


class FileSinkWriter:
    """The `SinkWriter` of one subtask.

    Args:
        target_bytes: A bucket's rows are written out when they take this much memory; besides at every
            checkpoint.
    """

    def __init__(
        self, *, root: str, stage: FileStage, file_format: Format, buckets: Buckets, target_bytes: int
    ) -> None:
        self._root = root
        self._stage = stage
        self._format: Format = file_format
        self._buckets = buckets
        self._target_bytes = target_bytes
        self._context: SinkContext | None = None
        self._owner = ""
        self._counter = 0
        self._rows: dict[str, list[pa.RecordBatch]] = {}
        self._bytes: dict[str, int] = {}
        self._staged: list[PartFile] = []

    def open(self, context: SinkContext, restored: Sequence[bytes]) -> None:
        """Removes what killed attempts of the restored subtasks have left; other writers' files stay."""
        self._context = context
        self._owner = staging_owner(context.job, context.sink_uid, context.index)
        states = [_decode(content) for content in restored]
        self._counter = max((state.counter for state in states), default=0)
        kept = {state.subtask: state.counter for state in states}
        if context.attempt.attempt == 0:
            return
        if not kept and context.restored is not None:
            # it had finished, perhaps; what it staged may be listed by a commit that is still to come
            self._counter = 1 + max(self._staged_counters(self._owner), default=-1)
            return
        for subtask, counter in (kept or {context.index: 0}).items():
            self._remove_orphans(staging_owner(context.job, context.sink_uid, subtask), counter)

    def write(self, batch: Batch) -> None:
        for bucket, records in self._buckets.split(batch):
            self._rows.setdefault(bucket, []).append(records)
            self._bytes[bucket] = self._bytes.get(bucket, 0) + records.nbytes
            if self._bytes[bucket] >= self._target_bytes:
                self._write_out(bucket)
        while sum(self._bytes.values()) > BUFFERED_BYTES_MAX:
            self._write_out(max(self._bytes, key=self._bytes.__getitem__))

    def flush(self, end_of_input: bool) -> None:
        for bucket in list(self._rows):
            self._write_out(bucket)

    def prepare_commit(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        assert not self._rows, "prepare_commit without flush"
        if not self._staged:
            return ()
        committable = FileCommittable(root=self._root, files=tuple(self._staged))
        self._staged = []
        return (msgspec.msgpack.encode(committable),)

    def snapshot_state(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        assert self._context is not None, "the writer is not open"
        state = FileWriterState(subtask=self._context.index, counter=self._counter)
        return (msgspec.msgpack.encode(state),)

    def close(self) -> None:
        for file in self._staged:
            self._stage.discard(file.bucket, file.name)
        self._staged = []
        self._rows.clear()
        self._bytes.clear()

    def _write_out(self, bucket: str) -> None:
        batches = self._rows.pop(bucket)
        del self._bytes[bucket]
        try:
            table = pa.Table.from_batches(batches)
        except pa.ArrowInvalid as error:
            raise UserCodeError(f"file sink: the stream's schema changed within a file: {error}") from error
        name = part_name(self._owner, self._counter, SUFFIXES[self._format])
        self._counter += 1
        size = self._stage.write(bucket, name, lambda file: _write_table(table, file, self._format))
        self._staged.append(PartFile(bucket=bucket, name=name, size=size, rows=table.num_rows))
        crash_point("file.staged")
        assert self._context is not None, "write before open"
        self._context.metrics.add("numRecordsSend", table.num_rows)
        self._context.metrics.add("numBytesSend", size)

    def _staged_counters(self, owner: str) -> Iterator[int]:
        for _, name in self._stage.staged(owner):
            found = counter_of(owner, name)
            if found is not None:
                yield found

    def _remove_orphans(self, owner: str, counter: int) -> None:
        for bucket, name in list(self._stage.staged(owner)):
            found = counter_of(owner, name)
            if found is not None and found >= counter:
                self._stage.discard(bucket, name)


def _decode(content: bytes) -> FileWriterState:
    try:
        return _STATE.decode(content)
    except msgspec.MsgspecError as error:
        raise CorruptSnapshot(f"the state of a file sink's writer is unreadable: {error}") from error


def _write_table(table: pa.Table, file: Any, file_format: Format) -> None:
    if file_format == "parquet":
        pq.write_table(table, file, compression="zstd", row_group_size=ROW_GROUP_ROWS)
        return
    for batch in table.to_batches(JSON_CHUNK_ROWS):
        file.write(_JSON.encode_lines(batch.to_pylist()))

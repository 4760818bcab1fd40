"""A small table as a bounded source: `Environment.from_collection` and `from_arrow` stand on it.

The rows travel inside the splits as Arrow IPC bytes, so a job that is restored reads what it began
with, whatever the program that restores it holds.
"""

from __future__ import annotations

import base64
import binascii
import itertools
from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec
import pyarrow as pa

from unistream.base.errors import ConfigError, CorruptSnapshot
from unistream.base.ids import CheckpointId
from unistream.base.limits import BATCH_ROWS_MAX, MIB
from unistream.model.graph import SourceInfo
from unistream.model.messages import Split
from unistream.port.source import (
    Exhausted,
    Idle,
    Polled,
    ReaderContext,
    Rows,
    SourceReader,
    SplitDiscovery,
    SplitFinished,
)

STATIC_BYTES_MAX: Final = MIB  # it travels in the job graph and in every checkpoint until it is read


class _StaticSplit(msgspec.Struct, frozen=True, kw_only=True):
    ipc: bytes
    position: int = 0
    v: int = 1


_DECODER: Final = msgspec.msgpack.Decoder(_StaticSplit)


class StaticSource:
    """The rows of `table`, in order.

    Args:
        table: At most 1 MiB as Arrow IPC.
        splits: Parts that subtasks can read at the same time; with 1 the order is kept.

    Raises:
        ConfigError: too large; write it to a file and read that with `FileSource`.
    """

    def __init__(self, table: pa.Table, *, splits: int = 1) -> None:
        if splits < 1:
            raise ConfigError(f"a static source needs at least 1 split, not {splits}")
        if not isinstance(table, pa.Table):
            raise ConfigError(f"a static source takes a pyarrow.Table, not {type(table).__name__}")
        self._schema = table.schema
        bounds = [table.num_rows * i // splits for i in range(splits + 1)]
        self._parts = [_to_ipc(table.slice(low, high - low)) for low, high in itertools.pairwise(bounds)]
        size = sum(len(part) for part in self._parts)
        if size > STATIC_BYTES_MAX:
            raise ConfigError(
                f"a static source holds at most {STATIC_BYTES_MAX} B, this table has {size} B: "
                "write it to a Parquet file and read that with FileSource"
            )

    @property
    def name(self) -> str:
        return "static"

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def info(self) -> SourceInfo:
        parts = [base64.b64encode(part).decode() for part in self._parts]
        return SourceInfo(connector="static", options={"parts": parts}, bounded=True, pull=True)

    def create_reader(self) -> SourceReader:
        return _StaticReader()


def create_discovery(info: SourceInfo) -> SplitDiscovery:
    """Raises ConfigError if the options are not those of `StaticSource.info`."""
    try:
        parts = msgspec.convert(info.options.get("parts"), list[str])
        contents = [base64.b64decode(part, validate=True) for part in parts]
    except (msgspec.ValidationError, binascii.Error) as error:
        raise ConfigError(f"options of a static source: 'parts' must be base64 texts: {error}") from error
    return _StaticDiscovery(contents)


class _StaticDiscovery:
    def __init__(self, parts: Sequence[bytes]) -> None:
        self._parts = parts

    def discover(self) -> Sequence[Split]:
        return [_encode(f"static-{i}", _StaticSplit(ipc=part)) for i, part in enumerate(self._parts)]

    def close(self) -> None:
        """Nothing is held."""


class _StaticReader:
    def __init__(self) -> None:
        self._context: ReaderContext | None = None
        self._splits: deque[tuple[str, _StaticSplit]] = deque()
        self._table: pa.Table | None = None
        self._requested = False
        self._no_more = False

    def open(self, context: ReaderContext) -> None:
        self._context = context

    def add_splits(self, splits: Sequence[Split]) -> None:
        self._splits.extend((split.id, _decode(split)) for split in splits)
        self._requested = False
        self._wake()

    def no_more_splits(self) -> None:
        self._no_more = True
        self._wake()

    def poll(self) -> Polled:
        assert self._context is not None, "poll before open"
        if not self._splits:
            if self._no_more:
                return Exhausted()
            if not self._requested:
                self._requested = True
                self._context.request_split()
            return Idle()
        split_id, split = self._splits[0]
        if self._table is None:
            self._table = _from_ipc(split_id, split.ipc)
        if split.position >= self._table.num_rows:
            self._splits.popleft()
            self._table = None
            return SplitFinished(split_id)
        records = _slice(self._table, split.position)
        position = split.position + records.num_rows
        self._splits[0] = (split_id, msgspec.structs.replace(split, position=position))
        return Rows(split_id, records)

    def snapshot(self) -> Sequence[Split]:
        return [_encode(split_id, split) for split_id, split in self._splits]

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        """Nothing is kept for it."""

    def close(self) -> None:
        self._splits.clear()
        self._table = None

    def _wake(self) -> None:
        if self._context is not None:
            self._context.wake()


def _slice(table: pa.Table, position: int) -> pa.RecordBatch:
    part = table.slice(position, BATCH_ROWS_MAX).combine_chunks()
    return part.to_batches()[0]


def _encode(split_id: str, split: _StaticSplit) -> Split:
    return Split(id=split_id, data=msgspec.msgpack.encode(split))


def _decode(split: Split) -> _StaticSplit:
    try:
        return _DECODER.decode(split.data)
    except msgspec.MsgspecError as error:
        raise CorruptSnapshot(f"split {split.id!r} of a static source is unreadable: {error}") from error


def _to_ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _from_ipc(split_id: str, content: bytes) -> pa.Table:
    try:
        return pa.ipc.open_stream(content).read_all()
    except pa.ArrowInvalid as error:
        raise CorruptSnapshot(f"split {split_id!r} of a static source is unreadable: {error}") from error

"""A table of the program as a bounded source, used by `Environment.from_collection`.

    up to INLINE_BYTES_MAX    splits contain the rows as Arrow IPC bytes, so a restored job reads the rows
    that it
                              began with, whatever rows the restoring program has
    up to STATIC_BYTES_MAX    the program's code contains the rows; a split names them by a digest, and a
    program
                              with other rows cannot restore the job

Splits are in the job graph, in messages of at most FRAME_BYTES_MAX, and in every checkpoint until they are
read.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from unistream.base.errors import ConfigError, CorruptSnapshot
from unistream.base.ids import CheckpointId
from unistream.base.limits import ARTIFACT_BYTES_MAX, BATCH_ROWS_MAX, MIB
from unistream.connector.common import ListedSplits, decoded_split, encoded_split
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

INLINE_BYTES_MAX: Final = MIB  # in the job graph and in every checkpoint until it is read
STATIC_BYTES_MAX: Final = ARTIFACT_BYTES_MAX // 2  # half of the program's code


class _StaticSplit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A split of the table. `digest`: of rows in the program's code; "": they are in `ipc`."""

    ipc: bytes = b""
    digest: str = ""
    position: int = 0
    v: int = 1


class StaticSource:
    """The rows of `table`, in order.

    Args:
        table: At most 256 MiB as Arrow IPC.
        splits: Parts that subtasks read in parallel; with 1 the order is kept.

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
                f"a static source holds at most {STATIC_BYTES_MAX // MIB} MiB, this table has {size // MIB} "
                "MiB: write it to a Parquet file and read that with FileSource"
            )
        digested = self._parts if size > INLINE_BYTES_MAX else ()
        self._digests = [hashlib.blake2b(part, digest_size=16).hexdigest() for part in digested]

    @property
    def name(self) -> str:
        return "static"

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def info(self) -> SourceInfo:
        options: dict[str, object] = {"parts": [base64.b64encode(part).decode() for part in self._parts]}
        if self._digests:
            options = {"digests": list(self._digests)}
        return SourceInfo(connector="static", options=options, bounded=True, pull=True)

    def create_reader(self) -> SourceReader:
        return _StaticReader(dict(zip(self._digests, self._parts, strict=False)))


def create_discovery(info: SourceInfo) -> SplitDiscovery:
    """Raises ConfigError if the options are not those of `StaticSource.info`."""
    try:
        if "digests" in info.options:
            digests = msgspec.convert(info.options["digests"], list[str])
            splits = [_StaticSplit(digest=digest) for digest in digests]
        else:
            parts = msgspec.convert(info.options.get("parts"), list[str])
            splits = [_StaticSplit(ipc=base64.b64decode(part, validate=True)) for part in parts]
    except (msgspec.ValidationError, binascii.Error) as error:
        raise ConfigError(f"options of a static source: 'parts' must be base64 texts: {error}") from error
    return ListedSplits(lambda: [encoded_split(f"static-{i}", split) for i, split in enumerate(splits)])


class _StaticReader:
    """Reads the table of a program. `parts`: the rows in the program's code, by digest."""

    def __init__(self, parts: Mapping[str, bytes]) -> None:
        self._parts = parts
        self._context: ReaderContext | None = None
        self._splits: deque[tuple[str, _StaticSplit]] = deque()
        self._table: pa.Table | None = None
        self._requested = False
        self._no_more = False

    def open(self, context: ReaderContext) -> None:
        self._context = context

    def add_splits(self, splits: Sequence[Split]) -> None:
        self._splits.extend((split.id, decoded_split(split, _StaticSplit, "static")) for split in splits)
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
            self._table = _from_ipc(split_id, self._content(split_id, split))
        if split.position >= self._table.num_rows:
            self._splits.popleft()
            self._table = None
            return SplitFinished(split_id)
        part = self._table.slice(split.position, BATCH_ROWS_MAX).combine_chunks()
        records = part.to_batches()[0]
        position = split.position + records.num_rows
        self._splits[0] = (split_id, msgspec.structs.replace(split, position=position))
        return Rows(split_id, records)

    def snapshot(self) -> Sequence[Split]:
        return [encoded_split(split_id, split) for split_id, split in self._splits]

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        """Does nothing: the rows of a program need no cleaning up after a checkpoint."""

    def close(self) -> None:
        self._splits.clear()
        self._table = None

    def _content(self, split_id: str, split: _StaticSplit) -> bytes:
        if not split.digest:
            return split.ipc
        content = self._parts.get(split.digest)
        if content is None:
            raise ConfigError(
                f"split {split_id!r} of a static source was begun with other rows than this program has: "
                "run it with the same rows, or give the source another uid to read the new rows"
            )
        return content

    def _wake(self) -> None:
        if self._context is not None:
            self._context.wake()


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

"""A complete blocking partition on disk, with an index by which other processes of this machine read it, too.

    folder = 0 ─ 1 ─ … ─ index         index = crc32c of the rest (4 bytes) ─ msgpack of what is in the files

The folder gets its name when all of it is there, so a process that finds it finds a complete partition.
"""

from __future__ import annotations

import shutil
from array import array
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec
from crc32c import crc32c

from unistream.base.errors import UNDECODABLE, ProtocolError
from unistream.base.ids import AttemptId, EdgeId

INDEX: Final = "index"
_CHECKSUM_BYTES: Final = 4


class _PartitionIndex(msgspec.Struct, frozen=True, array_like=True):
    attempt: AttemptId
    edge: EdgeId
    sizes: tuple[int, ...]
    files: tuple[int, ...]
    persistent: bool
    segments: tuple[bytes, ...]  # in this machine's order of bytes


@dataclass(frozen=True, slots=True)
class SealedPartition:
    """A complete partition on disk.

    Attributes:
        sizes: Bytes of each file; file n is named ``n``.
        files: The file of each subpartition.
        persistent: It outlives its job.
        segments: Of a `BucketedPartition`: where the frames of each stream are, file by file.
    """

    attempt: AttemptId
    edge: EdgeId
    folder: Path
    sizes: tuple[int, ...]
    files: tuple[int, ...]
    persistent: bool = False
    segments: tuple[array[int], ...] = ()

    def delete(self) -> None:
        """Its readers fail from now on. May be repeated."""
        shutil.rmtree(self.folder, ignore_errors=True)


def name_of(text: str) -> str:
    """A name for a file or folder; ids may be any text."""
    return blake2b(text.encode(), digest_size=16).hexdigest()


def partition_name(attempt: AttemptId, edge: EdgeId) -> str:
    """That of the partition's folder, in the private folder of its worker."""
    return name_of(f"{attempt}>{edge}")


def write_index(sealed: SealedPartition, folder: Path) -> None:
    """`folder`: where it still is. Raises OSError."""
    segments = tuple(stream.tobytes() for stream in sealed.segments)
    index = _PartitionIndex(
        sealed.attempt, sealed.edge, sealed.sizes, sealed.files, sealed.persistent, segments
    )
    content = msgspec.msgpack.encode(index)
    (folder / INDEX).write_bytes(crc32c(content).to_bytes(_CHECKSUM_BYTES, "little") + content)


def read_index(folder: Path) -> SealedPartition:
    """The partition in `folder`.

    Raises:
        FileNotFoundError: there is none.
        OSError: it cannot be read.
        ProtocolError: its index is damaged, or of another version.
    """
    whole = (folder / INDEX).read_bytes()
    content = whole[_CHECKSUM_BYTES:]
    if crc32c(content) != int.from_bytes(whole[:_CHECKSUM_BYTES], "little"):
        raise ProtocolError(f"{folder / INDEX} does not match its checksum")
    try:
        index = msgspec.msgpack.decode(content, type=_PartitionIndex)
    except UNDECODABLE as error:  # nothing at all, or of a worker of another version
        raise ProtocolError(f"{folder / INDEX} is no index that this version writes") from error
    segments = tuple(array("Q", stream) for stream in index.segments)
    return SealedPartition(
        index.attempt, index.edge, folder, index.sizes, index.files, index.persistent, segments
    )

"""Avro's object container files: a header with the schema, and then blocks.

    Obj 1 · metadata (avro.schema, avro.codec) · mark      block: count · size · records · mark     block …

The mark is 16 bytes that the writer has drawn by lot, so a reader finds the next block from any byte. A block
is one of the split in which the mark before it begins. Some blocks, one behind the other, are a unit; its
number is the byte at which the first one begins.
"""

from __future__ import annotations

import bz2
import itertools
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from unistream.base.limits import GIB, MIB
from unistream.connector.common import Int64s, UInt8s, UnknownSchema, padded

MAGIC: Final = b"Obj\x01"
MARK_BYTES: Final = 16
WINDOW_BYTES: Final = MIB  # read at once
HEADER_BYTES_MAX: Final = 16 * MIB  # a schema of an enterprise has some hundred KB
BLOCK_BYTES_MAX: Final = GIB  # decompressed; as Java's writer has it
ROWS_OF_NOTHING_MAX: Final = 65_536  # records of no bytes, which a block may say that it has any number of
_VARINT_BYTES_MAX: Final = 10


class Damaged(Exception):
    """What is wrong with a block or a header, as a clause."""


class Window:
    """Bytes of a file at any place; neighbours are read together."""

    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file
        self.size = int(file.size())
        self._at = 0
        self._bytes = b""

    def read(self, at: int, size: int) -> bytes:
        """Reads bytes at a place; they are fewer at the end of the file."""
        if not self._at <= at <= at + size <= self._at + len(self._bytes):
            self._file.seek(at)
            self._at, self._bytes = at, bytes(self._file.read(min(max(size, WINDOW_BYTES), self.size - at)))
        low = at - self._at
        return self._bytes[low : low + size]

    def find(self, mark: bytes, at: int, stop: int) -> int:
        """Finds where the first mark begins in [at, stop); -1: there is none."""
        while at < stop:
            content = self.read(at, min(WINDOW_BYTES, stop + len(mark) - 1 - at))
            found = content.find(mark)
            if found >= 0:
                return at + found
            if at + len(content) >= self.size:
                return -1
            at += len(content) - len(mark) + 1
        return -1


@dataclass(frozen=True, slots=True)
class AvroHeader:
    """The header of a file. `end`: where the first block begins; `schema`: JSON."""

    schema: str
    codec: str
    mark: bytes
    end: int


def read_header(window: Window) -> AvroHeader:
    """Raises Damaged: it is none."""
    if window.read(0, len(MAGIC)) != MAGIC:
        raise Damaged("it does not begin with Obj and 1")
    size = 64 * 1024
    while True:
        content = window.read(0, size)
        try:
            metadata, at = _metadata(content, len(MAGIC))
        except IndexError:
            if len(content) == window.size or size > HEADER_BYTES_MAX:
                raise Damaged("its header does not end") from None
            size *= 4
            continue
        break
    mark = window.read(at, MARK_BYTES)
    if len(mark) < MARK_BYTES:
        raise Damaged("its header is cut off")
    try:
        codec = metadata.get("avro.codec", b"null").decode() or "null"
        return AvroHeader(metadata["avro.schema"].decode(), codec, mark, at + MARK_BYTES)
    except (KeyError, UnicodeDecodeError):
        raise Damaged("its header has no schema") from None


def _metadata(content: bytes, at: int) -> tuple[dict[str, bytes], int]:
    """Raises IndexError: there is more of it."""
    found: dict[str, bytes] = {}
    while True:
        count, at = _number(content, at)
        if not count:
            return found, at
        if count < 0:
            _, at = _number(content, at)
        for _ in range(abs(count)):
            key, at = _bytes(content, at)
            found[key.decode(errors="replace")], at = _bytes(content, at)


def _number(content: bytes, at: int) -> tuple[int, int]:
    """Raises IndexError: there is more of it. Damaged: it is none."""
    value = shift = 0
    while True:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift >= 7 * _VARINT_BYTES_MAX:
            raise Damaged("a number in it is longer than 64 bits")


def _bytes(content: bytes, at: int) -> tuple[bytes, int]:
    size, at = _number(content, at)
    if size < 0:
        raise Damaged("a length in its header is below 0")
    if at + size > len(content):
        raise IndexError(f"{size} B at {at} of {len(content)}")
    return content[at : at + size], at + size


# --- blocks ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Block:
    """A block of records. `at`: where it begins; `following`: where the next one does; `records`:
    decompressed."""

    at: int
    following: int
    count: int
    records: bytes


def blocks(window: Window, header: AvroHeader, start: int, stop: int, at: int) -> Iterator[Block]:
    """Yields the blocks of the range [start, stop), from the one at `at` on; at the start of the range this
    is not known.

    Raises:
        Damaged: one is.
    """
    decompress = decompressor(header.codec)
    if at <= start:
        first = window.find(header.mark, max(start, header.end - MARK_BYTES), stop)
        if first < 0:
            return
        at = first + MARK_BYTES
    while at - MARK_BYTES < stop and at < window.size:
        try:
            block = _block(window, header, at, decompress)
        except Damaged as damaged:
            raise Damaged(f"block at byte {at}: {damaged}") from damaged
        yield block
        at = block.following


def _block(window: Window, header: AvroHeader, at: int, decompress: Callable[[bytes], bytes]) -> Block:
    try:
        head = window.read(at, 2 * _VARINT_BYTES_MAX)
        count, used = _number(head, 0)
        size, used = _number(head, used)
    except IndexError:
        raise Damaged("it is cut off") from None
    if count < 0 or size < 0:
        raise Damaged("a number in it is below 0")
    stored = window.size - at - used
    if size + MARK_BYTES > stored:
        raise Damaged(f"it is cut off, or damaged: it has {size} B and a mark, and the file only {stored} B")
    content = window.read(at + used, size + MARK_BYTES)
    if content[size:] != header.mark:
        raise Damaged("the mark behind it is not that of the file")
    records = decompress(content[:size])
    if count > max(len(records), ROWS_OF_NOTHING_MAX):
        raise Damaged(f"it says that {count} records are in {len(records)} B")
    return Block(at, at + used + size + MARK_BYTES, count, records)


def units(found: Iterator[Block], block_bytes: int) -> Iterator[list[Block]]:
    """Blocks of about so many bytes together, at least one."""
    unit: list[Block] = []
    size = 0
    for block in found:
        unit.append(block)
        size += len(block.records)
        if size >= block_bytes:
            yield unit
            unit, size = [], 0
    if unit:
        yield unit


def as_one(unit: Sequence[Block]) -> tuple[UInt8s, Int64s, Int64s]:
    """Puts the records of blocks behind each other, padded; where those of each block begin and end; how many
    each has."""
    bounds = list(itertools.accumulate((len(block.records) for block in unit), initial=0))
    counts = np.array([block.count for block in unit], np.int64)
    return padded(*(block.records for block in unit)), np.array(bounds, np.int64), counts


def row_in(unit: Sequence[Block], row: int) -> str:
    """Which one this is, of all of the unit."""
    for block in unit:
        if row < block.count:
            return f"block at byte {block.at}, record {row + 1}"
        row -= block.count
    return f"block at byte {unit[-1].at}"


# --- codecs ---------------------------------------------------------------------------------------


def decompressor(codec: str) -> Callable[[bytes], bytes]:
    """Raises UnknownSchema: it is not one of those that are read. What it returns raises Damaged."""
    if codec not in _CODECS:
        raise UnknownSchema(f"its blocks are compressed by {codec!r}; {', '.join(_CODECS)} are read")
    return _CODECS[codec]


def _stored(content: bytes) -> bytes:
    return content


def _ends(name: str, made: Any, content: bytes) -> bytes:
    """Decompresses by a decompressor of Python. Raises Damaged: the content is, or it does not end."""
    try:
        found = made.decompress(content, BLOCK_BYTES_MAX)
    except (zlib.error, lzma.LZMAError, OSError, EOFError) as error:
        raise Damaged(f"its {name} is damaged: {error}") from error
    if not made.eof:
        raise Damaged(_too_long(name) if len(found) >= BLOCK_BYTES_MAX else f"its {name} does not end")
    return bytes(found)


def _too_long(name: str) -> str:
    return f"its {name} has more than {BLOCK_BYTES_MAX} B"


def _deflate(content: bytes) -> bytes:
    """Decompresses what has no header of zlib; Python's writers leave some bytes of its checksum behind the
    data."""
    return _ends("deflate", zlib.decompressobj(-zlib.MAX_WBITS), content)


def _bzip2(content: bytes) -> bytes:
    return _ends("bzip2", bz2.BZ2Decompressor(), content)


def _xz(content: bytes) -> bytes:
    return _ends("xz", lzma.LZMADecompressor(lzma.FORMAT_XZ), content)


def _snappy(content: bytes) -> bytes:
    """Decompresses what has a checksum of the data behind it."""
    if len(content) < 5:
        raise Damaged("its snappy is too short")
    data, checksum = content[:-4], int.from_bytes(content[-4:], "big")
    size = shift = at = 0
    while at < min(5, len(data)):  # the first number is the length of what comes out
        size |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            break
    if size > BLOCK_BYTES_MAX:
        raise Damaged(_too_long("snappy"))
    try:
        decompressed = (
            pa.Codec("snappy").decompress(data, decompressed_size=size, asbytes=True) if size else b""
        )
    except (pa.ArrowException, OSError) as error:
        raise Damaged(f"its snappy is damaged: {error}") from error
    if zlib.crc32(decompressed) != checksum:
        raise Damaged("its checksum is not that of its data")
    return bytes(decompressed)


def _zstandard(content: bytes) -> bytes:
    try:
        with pa.CompressedInputStream(pa.BufferReader(content), "zstd") as stream:
            found = stream.read(BLOCK_BYTES_MAX + 1)
    except (pa.ArrowException, OSError) as error:
        raise Damaged(f"its zstandard is damaged: {error}") from error
    if len(found) > BLOCK_BYTES_MAX:
        raise Damaged(_too_long("zstandard"))
    return bytes(found)


_CODECS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "null": _stored,
    "deflate": _deflate,
    "snappy": _snappy,
    "zstandard": _zstandard,
    "bzip2": _bzip2,
    "xz": _xz,
}

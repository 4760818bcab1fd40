"""The pieces that a place has got, in an order that does not depend on how they came.

An engine repeats a task whose output was lost, while tasks that have read that output go on. So each attempt
at a place must make the same pieces, and for that it must read the same in the same order.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from unistream.base.closing import Closing
from unistream.base.ids import EdgeId
from unistream.base.limits import MIB
from unistream.worker.bounded.pieces import Piece

WRITE_BUFFER_BYTES: Final = MIB

_Key = tuple[EdgeId, int, int, int]


class Arrivals(Closing):
    """Pieces, of which those that do not fit into memory are in a file.

    Args:
        folder: For the file.
        memory_bytes: Of the contents that are kept in memory.
    """

    def __init__(self, folder: Path, memory_bytes: int) -> None:
        self._left_bytes = memory_bytes
        self._kept: dict[_Key, bytes] = {}
        self._filed: dict[_Key, tuple[int, int]] = {}  # offset and length in the file
        self._folder = folder
        self._file: IO[bytes] | None = None

    def add(self, piece: Piece) -> None:
        key = (piece.edge, piece.consumer, piece.producer, piece.number)
        if self._left_bytes >= len(piece.content):
            self._left_bytes -= len(piece.content)
            self._kept[key] = piece.content
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(  # noqa: SIM115  closed by `close`
                dir=self._folder, buffering=WRITE_BUFFER_BYTES
            )
        self._filed[key] = (self._file.tell(), len(piece.content))
        self._file.write(piece.content)

    def take(self) -> Iterator[Piece]:
        """All pieces, by edge, then producer, then number; none is added any more."""
        for key in sorted([*self._kept, *self._filed]):
            edge, consumer, producer, number = key
            yield Piece(edge, producer, consumer, number, self._take(key))

    def _take(self, key: _Key) -> bytes:
        if key in self._kept:
            return self._kept.pop(key)
        assert self._file is not None, "a piece of the file"
        offset, length = self._filed[key]
        self._file.seek(offset)
        return self._file.read(length)

    def close(self) -> None:
        """Removes the file."""
        if self._file is not None:
            self._file.close()

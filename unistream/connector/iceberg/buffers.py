"""Rows of each partition in memory, until they are written to a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import pyarrow as pa

from unistream.base.limits import MIB

BUFFERED_BYTES_MAX: Final = 128 * MIB  # of all partitions together; above it the largest is written to a file

Key: TypeAlias = tuple[Any, ...]
"""Values of a partition. Nothing here imports pyiceberg, for which a first row does not wait."""


class PartitionBuffers:
    """
    Args:
        target_bytes: Rows of a partition are written to a file when they take this much memory.
        write_out: Writes one, of the rows of a partition.
    """

    def __init__(self, target_bytes: int, write_out: Callable[[Key, list[pa.RecordBatch]], None]) -> None:
        self._target_bytes = target_bytes
        self._write_out = write_out
        self._held: dict[Key, list[pa.RecordBatch]] = {}
        self._bytes: dict[Key, int] = {}
        self._total = 0

    def __bool__(self) -> bool:
        return bool(self._held)

    def add(self, key: Key, records: pa.RecordBatch) -> None:
        """Raises as `write_out`."""
        self._held.setdefault(key, []).append(records)
        self._bytes[key] = self._bytes.get(key, 0) + records.nbytes
        self._total += records.nbytes
        if self._bytes[key] >= self._target_bytes:
            self._pass_on(key)
        while self._total > BUFFERED_BYTES_MAX:
            self._pass_on(max(self._bytes, key=lambda one: self._bytes[one]))

    def flush(self) -> None:
        """Raises as `write_out`."""
        for key in list(self._held):
            self._pass_on(key)

    def clear(self) -> None:
        self._held.clear()
        self._bytes.clear()
        self._total = 0

    def _pass_on(self, key: Key) -> None:
        self._total -= self._bytes.pop(key)
        self._write_out(key, self._held.pop(key))

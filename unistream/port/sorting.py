"""Rows of a keyed input that come back key by key, in a bounded job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from unistream.model.elements import Batch

Starts: TypeAlias = npt.NDArray[np.int64]
"""Positions of rows, ascending."""


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows in the order of keys and times; there is at least one.

    Attributes:
        starts: The first row of each key, in order; the first is 0.
        ends_key: All rows of the last key are there; otherwise the next rows continue it. All keys before it
            are complete.
    """

    batch: Batch
    starts: Starts
    ends_key: bool


class RowSorter(Protocol):
    """Groups rows by key."""

    def add(self, batch: Batch) -> None:
        """Adds rows. Raises OSError if they could not be written."""

    def sorted_until(self, number: int, count: int) -> Iterator[KeyedRows]:
        """The rows of the buckets up to `number`, of `count` (`model.key_buckets`), once; only rows of others
        may be added afterwards. Raises like `sorted`."""

    def sorted(self) -> Iterator[KeyedRows]:
        """All other rows, once; none may be added afterwards.

        Raises:
            OSError: a file could not be written or read.
            ProtocolError: a file is not what was written.
        """

    def close(self) -> None:
        """Removes all files. May be called again."""

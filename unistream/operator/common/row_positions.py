"""Positions of rows in their batch, as Python's integers that are made once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from unistream.base.limits import BATCH_ROWS_MAX


def positions(size: int) -> Sequence[int]:
    """0 to `size` - 1. No integer is made for each row, and lists of them are compared by identity.

    >>> list(positions(3))
    [0, 1, 2]
    """
    return _kept()[:size] if size <= BATCH_ROWS_MAX else range(size)


@lru_cache(maxsize=1)
def _kept() -> list[int]:
    return list(range(BATCH_ROWS_MAX))

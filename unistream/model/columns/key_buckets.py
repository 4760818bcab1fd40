"""Buckets of keys: how the rows of one consumer are divided further, where it sorts them by key.

A stored exchange before such a consumer is written in the order of buckets and read in that order, so that
all rows of a bucket are there before those of the next come, and it sorts one bucket at a time. (Hash
partitioning after G. Graefe, "Query Evaluation Techniques for Large Databases", 1993, 4.3.)
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from unistream.model.key_groups import Hashes

BUCKETS_MAX: Final = 64
_STORED_MAX: Final = 16  # of a consumer: more make pieces small without making sorting faster
_PIECES_MAX: Final = 64  # of one write: with its buffer of 8 MiB none is below 128 KiB
_HASH_BITS: Final = 32

Buckets: TypeAlias = npt.NDArray[np.uint8]
"""Key -> bucket."""


def bucket_count(consumers: int) -> int:
    """The number of buckets into which the rows of each of so many consumers are divided when they are
    stored, a power of two; 0: they are not divided.

    >>> [bucket_count(n) for n in (1, 4, 5, 32, 33)]
    [16, 16, 8, 2, 0]
    """
    count = _STORED_MAX
    while count > 1 and count * consumers > _PIECES_MAX:
        count //= 2
    return count if count > 1 else 0


def buckets_of(hashes: Hashes, count: int, level: int = 0) -> Buckets:
    """The bucket of each key among `count`, a power of two up to 64: by the first bits of its hash. Those of
    fewer buckets are ranges of those of more. `level`: of a division of one bucket of 64 into 64 more, by the
    next bits; after the last level all rows have one hash."""
    bits = count.bit_length() - 1
    shift = max(0, _HASH_BITS - bits * (level + 1))
    # key groups are chosen by another function, so those of one consumer are in all buckets
    mixed = hashes * np.uint32(0x9E3779B1)
    return ((mixed >> np.uint32(shift)) & np.uint32(count - 1)).astype(np.uint8)

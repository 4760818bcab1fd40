"""A buffer of bytes for compiled loops, which read many of them at once: `PADDING` bytes stand behind it."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Int64s: TypeAlias = npt.NDArray[np.int64]
UInt8s: TypeAlias = npt.NDArray[np.uint8]

PADDING: Final = 32


def padded(*parts: bytes | memoryview) -> UInt8s:
    """The bytes, with `PADDING` zeros behind them.

    >>> bytes(padded(b"ab")) == b"ab" + bytes(PADDING)
    True
    """
    return np.frombuffer(b"".join((*parts, bytes(PADDING))), np.uint8)

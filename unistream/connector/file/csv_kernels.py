"""The compiled loop that finds where rows of CSV end."""

from __future__ import annotations

from typing import Final

import numpy as np

from unistream.connector.common.buffers import UInt8s
from unistream.connector.common.compiled import compiled

QUOTE: Final = np.uint8(0x22)
LF: Final = np.uint8(0x0A)
CR: Final = np.uint8(0x0D)


@compiled("u1[:] i8")
def last_row_end(data: UInt8s, delimiter: int) -> int:
    """Finds where the last row that ends within `data` ends; minus 1 and minus that: a quote is open behind
    it. A row begins at 0. As for Arrow, a quote counts where a value begins, and a doubled one within
    quotes does not. A CR that is the last byte ends no row: LF may follow."""
    end, at, size = 0, 0, len(data)
    separator = np.uint8(delimiter)
    while at < size:
        if data[at] == QUOTE:
            at += 1
            while True:
                while at < size and data[at] != QUOTE:
                    at += 1
                if at >= size:
                    return -1 - end
                at += 1
                if at >= size or data[at] != QUOTE:
                    break
                at += 1
        while at < size and data[at] != separator and data[at] != LF and data[at] != CR:
            at += 1
        if at < size and (data[at] == LF or (data[at] == CR and at + 1 < size and data[at + 1] != LF)):
            end = at + 1
        at += 1
    return end

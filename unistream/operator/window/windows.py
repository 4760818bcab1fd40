"""Bounds of windows: pure arithmetic on event times.

A window is [start, end). Sliding windows overlap; their rows are stored by *pane*, the largest interval
without a window bound inside, and a window is a run of panes. The panes of tumbling windows are the windows.

Event times are int64, and so are the bounds: numpy wraps around in silence, so a row whose windows would end
after the largest time is found before its panes are computed (`Windows.end_in_range`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unistream.base.config import DurationLike, duration_ms
from unistream.base.errors import ConfigError
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.model.no_value import NoValue

_LENGTH_MS_MAX: Final = 2**62  # of a size or an offset: 146 million years

Ends = NDArray[np.int64]
"""Times in ms, one for each row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows(NoValue):
    """Windows of `size_ms` that start every `slide_ms`, shifted by `offset_ms` from the epoch."""

    size_ms: int
    slide_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        if self.size_ms < 1 or self.slide_ms < 1:
            raise ConfigError(f"windows of {self.size_ms} ms every {self.slide_ms} ms: both must be positive")
        if max(self.size_ms, self.slide_ms, abs(self.offset_ms)) > _LENGTH_MS_MAX:
            raise ConfigError(f"{self}: their size and offset must not exceed {_LENGTH_MS_MAX} ms")
        if self.slide_ms > self.size_ms:
            raise ConfigError(
                "the slide of windows must not exceed their size: rows between them would be lost "
            )

    def why_no_value(self, operator: str) -> str:
        """See `unistream.model.no_value`."""
        return "windows have no value of a row: they are what window takes, key_by('shop').window(…)"

    @property
    def pane_ms(self) -> int:
        """Length of a pane."""
        return gcd(self.size_ms, self.slide_ms)

    @property
    def overlap(self) -> bool:
        return self.slide_ms != self.size_ms

    @property
    def canonical(self) -> Windows:
        """The same windows with the least offset.

        >>> SlidingEventTimeWindows.of(20, 10, offset=-5).canonical
        Windows(size_ms=20, slide_ms=10, offset_ms=5)
        """
        return replace(self, offset_ms=self.offset_ms % self.slide_ms)

    def __str__(self) -> str:
        """
        >>> str(TumblingEventTimeWindows.of("1 h")), str(SlidingEventTimeWindows.of(20, 10, offset=5))
        ('tumbling windows of 3600000 ms', 'sliding windows of 20 ms every 10 ms with an offset of 5 ms')
        """
        every = f" every {self.slide_ms} ms" if self.overlap else ""
        offset = f" with an offset of {self.offset_ms} ms" if self.offset_ms else ""
        return f"{'sliding' if self.overlap else 'tumbling'} windows of {self.size_ms} ms{every}{offset}"

    def pane_end(self, timestamp: int) -> int:
        """End of the pane of `timestamp`; floor division is correct for negative times too.

        >>> Windows(size_ms=10, slide_ms=10).pane_end(-1), Windows(size_ms=10, slide_ms=10).pane_end(0)
        (0, 10)
        """
        pane = self.pane_ms
        return (timestamp - self.offset_ms) // pane * pane + self.offset_ms + pane

    def pane_ends(self, timestamps: Ends) -> Ends:
        """`pane_end` of every element; at least one, and all of them `end_in_range`."""
        pane = self.pane_ms
        offset = self.offset_ms % pane
        if int(timestamps.min()) < MIN_WATERMARK + 2 * pane:  # what is subtracted first could wrap around
            since: Ends = np.remainder(np.remainder(timestamps, pane) - offset, pane)
            return timestamps + (pane - since)
        ends: Ends = timestamps - offset
        np.floor_divide(ends, pane, out=ends)
        ends *= pane
        ends += offset + pane
        return ends

    def end_in_range(self, timestamp: int) -> bool:
        """The last window of a row with this time ends at a time that int64 has.

        >>> windows = Windows(size_ms=10, slide_ms=10)
        >>> windows.end_in_range(2**63 - 9), windows.end_in_range(2**63 - 8)
        (True, False)
        """
        return self.last_end(self.pane_end(timestamp)) <= MAX_WATERMARK

    def start_in_range(self, end: int) -> bool:
        """The window that ends at `end` starts at a time that int64 has."""
        return end - self.size_ms >= MIN_WATERMARK

    def last_end(self, pane_end: int) -> int:
        """End of the last window that contains the pane which ends at `pane_end`."""
        if not self.overlap:
            return pane_end
        pane_start = pane_end - self.pane_ms
        return (pane_start - self.offset_ms) // self.slide_ms * self.slide_ms + self.offset_ms + self.size_ms

    def ends_containing(self, pane_end: int) -> Iterator[int]:
        """Ends of all windows that contain the pane, ascending."""
        last = self.last_end(pane_end)
        reach = (last - pane_end) // self.slide_ms
        return iter(range(last - reach * self.slide_ms, last + 1, self.slide_ms))


class TumblingEventTimeWindows:
    """Windows without gaps or overlaps.

    >>> TumblingEventTimeWindows.of("1 h")
    Windows(size_ms=3600000, slide_ms=3600000, offset_ms=0)
    """

    @staticmethod
    def of(size: DurationLike, offset: DurationLike = 0) -> Windows:
        """`size` and `offset` are durations (``"10 s"`` or a `timedelta`) or milliseconds."""
        size_ms = duration_ms(size)
        offset_ms = offset if isinstance(offset, int) else duration_ms(offset)
        return Windows(size_ms=size_ms, slide_ms=size_ms, offset_ms=offset_ms)


class SlidingEventTimeWindows:
    """Windows of one size that overlap.

    >>> SlidingEventTimeWindows.of("1 h", "10 min").pane_ms
    600000
    """

    @staticmethod
    def of(size: DurationLike, slide: DurationLike, offset: DurationLike = 0) -> Windows:
        """`size`, `slide` and `offset` are durations (``"10 s"`` or a `timedelta`) or milliseconds."""
        windows = TumblingEventTimeWindows.of(size, offset)
        return replace(windows, slide_ms=duration_ms(slide))

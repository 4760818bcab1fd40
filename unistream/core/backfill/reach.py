"""Which event times contribute to results of a range, and which results a stream has finished.

A result has a time, in a column of its row. Rows that contribute to it have event times at most `span_ms`
before or after that. The stream has finished the results before a time T if none of them can come later:

    time = end of the windows, or of a row       T <= watermark + 1
    time = start of one kind of windows          the last window that starts before T ends by watermark + 1
    anything else                                T + span <= watermark + 1
"""

from __future__ import annotations

from dataclasses import dataclass

from unistream.model.time_range import TimeRange


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowGrid:
    """Windows of `size_ms` that start every `slide_ms`, shifted by `offset_ms` from the epoch."""

    size_ms: int
    slide_ms: int
    offset_ms: int

    def first_open(self, watermark_ms: int) -> int:
        """Start of the first window that has not fired at this watermark.

        >>> WindowGrid(size_ms=10, slide_ms=10, offset_ms=0).first_open(19)
        20
        >>> WindowGrid(size_ms=10, slide_ms=10, offset_ms=0).first_open(18)
        10
        >>> WindowGrid(size_ms=20, slide_ms=5, offset_ms=1).first_open(25)
        11
        """
        last_fired = (watermark_ms + 1 - self.size_ms - self.offset_ms) // self.slide_ms
        return (last_fired + 1) * self.slide_ms + self.offset_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """See the module.

    Attributes:
        final_at_time: No result comes after its own time, as of a column with the end of windows.
        starts: The windows whose starts are the times of results; None: others.
        in_order: Results come in the order of their times, as those of one kind of windows do.
    """

    span_ms: int
    final_at_time: bool = False
    starts: WindowGrid | None = None
    in_order: bool = False

    def rows_for(self, range_: TimeRange) -> TimeRange:
        """Event times of all rows that contribute to results of the range."""
        return range_.widened(self.span_ms)

    def finished_until(self, watermark_ms: int) -> int:
        """The greatest T such that all results before T are finished at this watermark."""
        if self.final_at_time:
            return watermark_ms + 1
        if self.starts is not None:
            return self.starts.first_open(watermark_ms)
        return watermark_ms + 1 - self.span_ms

    def behind(self, newest_ms: int) -> int:
        """The greatest T such that all results before T are finished, where none comes but in order and the
        newest is of this time."""
        return newest_ms + (1 if self.starts is None else self.starts.slide_ms)

"""How a source assigns event times and watermarks, as data."""

from __future__ import annotations

from dataclasses import dataclass, replace

from unistream.base.config import DurationLike, duration_ms
from unistream.base.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkStrategy:
    """Event time of a row, and how far rows may be out of order, per split.

    Attributes:
        timestamp_column: int64 milliseconds or an Arrow timestamp/date; None: the source's own time (of a
            Kafka record), if any.
        out_of_orderness_ms: The watermark is (largest event time) - this - 1; None: no watermarks until the
            end of the data.
        idle_ms: A split of an unbounded source without rows for this long does not hold back the watermark;
            None: never idle.

    >>> WatermarkStrategy.for_bounded_out_of_orderness("30 min").with_timestamp_column("seen_at")
    WatermarkStrategy(timestamp_column='seen_at', out_of_orderness_ms=1800000, idle_ms=None)
    """

    timestamp_column: str | None = None
    out_of_orderness_ms: int | None = None
    idle_ms: int | None = None

    @classmethod
    def no_watermarks(cls) -> WatermarkStrategy:
        """A strategy without watermarks but the final MAX_WATERMARK."""
        return cls()

    @classmethod
    def for_monotonous_timestamps(cls) -> WatermarkStrategy:
        """Event times never decrease within a split."""
        return cls(out_of_orderness_ms=0)

    @classmethod
    def for_bounded_out_of_orderness(cls, bound: DurationLike) -> WatermarkStrategy:
        """Rows of a split are at most `bound` (``"5 s"``, ms or a `timedelta`) behind the newest one."""
        bound_ms = duration_ms(bound)
        return cls(out_of_orderness_ms=bound_ms)

    def with_timestamp_column(self, column: str) -> WatermarkStrategy:
        """Event time is in `column`."""
        if not column:
            raise ConfigError("the timestamp column needs a name")
        return replace(self, timestamp_column=column)

    def with_idleness(self, timeout: DurationLike) -> WatermarkStrategy:
        """A split of an unbounded source without rows for `timeout` is idle."""
        return replace(self, idle_ms=duration_ms(timeout))

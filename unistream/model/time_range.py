"""A range of event time, as commands and operators take it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from unistream.base.errors import ConfigError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TimeRange(msgspec.Struct, frozen=True, kw_only=True):
    """Times `begin_ms` <= t < `end_ms`, in ms since 1970.

    >>> TimeRange.parse("2026-01-01", "2026-02-01T00:00:00Z").text
    '[2026-01-01T00:00:00Z, 2026-02-01T00:00:00Z)'
    """

    begin_ms: int
    end_ms: int

    @classmethod
    def parse(cls, begin: str, end: str) -> TimeRange:
        """The range from two times in ISO 8601; without a zone they are UTC. Raises ConfigError."""
        found = cls(begin_ms=_parsed("--from", begin), end_ms=_parsed("--to", end))
        if found.begin_ms >= found.end_ms:
            raise ConfigError(f"--from {begin} is not before --to {end}, so there is nothing between them")
        return found

    def widened(self, by_ms: int) -> TimeRange:
        """The range with `by_ms` more at both ends."""
        return TimeRange(begin_ms=self.begin_ms - by_ms, end_ms=self.end_ms + by_ms)

    @property
    def text(self) -> str:
        return f"[{time_text(self.begin_ms)}, {time_text(self.end_ms)})"


def moment_ms(at: datetime) -> int:
    """Whole ms since 1970; without a zone it is UTC.

    >>> moment_ms(datetime(1970, 1, 1, 0, 0, 1)), moment_ms(datetime(1969, 12, 31, 23, 59, 59, 999_500))
    (1000, -1)
    """
    utc = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return (utc - _EPOCH) // timedelta(milliseconds=1)


def time_text(at_ms: int) -> str:
    """ISO 8601, in UTC; with milliseconds if it has any. A time that no calendar has is a number.

    >>> time_text(0), time_text(1_500), time_text(2**62)
    ('1970-01-01T00:00:00Z', '1970-01-01T00:00:01.500Z', '4611686018427387904 ms')
    """
    try:
        at = _EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError:
        return f"{at_ms} ms"
    precision = "milliseconds" if at_ms % 1000 else "seconds"
    return at.replace(tzinfo=None).isoformat(timespec=precision) + "Z"


def _parsed(option: str, text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{option} must be a time such as 2026-01-01 or 2026-01-01T06:00:00Z, not {text!r}"
        ) from None
    return moment_ms(at)

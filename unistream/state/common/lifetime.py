"""How long a value lives: when it expires, and who still sees it then."""

from __future__ import annotations

from unistream.base.clock import Clock
from unistream.model.state import StateTtl, TtlUpdate, TtlVisibility


class Lifetime:
    """What a time to live means for values."""

    __slots__ = ("_clock", "_ms", "on_read", "shows_expired")

    def __init__(self, ttl: StateTtl, clock: Clock) -> None:
        self._clock = clock
        self._ms = ttl.time_to_live_ms
        self.on_read = ttl.update is TtlUpdate.ON_READ_AND_WRITE
        self.shows_expired = ttl.visibility is TtlVisibility.RETURN_IF_NOT_CLEANED_UP

    def now(self) -> int:
        return self._clock.wall_ms()

    def expiry(self) -> int:
        """When what is written now expires."""
        return self._clock.wall_ms() + self._ms

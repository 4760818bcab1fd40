"""Time to live: when a value expires, and which reads still see it then."""

from __future__ import annotations

from unistream.base.clock import Clock
from unistream.base.limits import NEVER_MS
from unistream.model.state import StateDescriptor, StateTtl, TtlUpdate, TtlVisibility


class Lifetime:
    """A `StateTtl` by a clock."""

    __slots__ = ("_clock", "_ms", "on_read", "shows_expired")

    def __init__(self, ttl: StateTtl, clock: Clock) -> None:
        self._clock = clock
        self._ms = ttl.time_to_live_ms
        self.on_read = ttl.update is TtlUpdate.ON_READ_AND_WRITE
        self.shows_expired = ttl.visibility is TtlVisibility.RETURN_IF_NOT_CLEANED_UP

    def now(self) -> int:
        return self._clock.wall_ms()

    def expiry(self) -> int:
        """When a value that is written now expires; a time that int64 does not have is never."""
        return min(self._clock.wall_ms() + self._ms, NEVER_MS)


def lifetime_of(descriptor: StateDescriptor, clock: Clock) -> Lifetime | None:
    """None: its values do not expire."""
    ttl = descriptor.options.ttl
    return None if ttl is None else Lifetime(ttl, clock)

"""How much of a worker one slot needs (Flink's ResourceProfile, FLIP-56, for slot sharing groups)."""

from __future__ import annotations

import msgspec


class ResourceProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Needs of one slot, or what a worker has in all.

    Attributes:
        cpu_cores: Fractions are fine; 0 = not told: whatever the worker's slot has.
        memory_mb: MiB of task, managed and network memory together; 0 = not told.
    """

    cpu_cores: float = 0.0
    memory_mb: int = 0

    @property
    def is_unknown(self) -> bool:
        """Nothing is told: any slot will do."""
        return not self.cpu_cores and not self.memory_mb

    def fits_in(self, available: ResourceProfile) -> bool:
        """It can be served from `available`; a part that `available` does not tell is no limit."""
        return (not available.cpu_cores or self.cpu_cores <= available.cpu_cores) and (
            not available.memory_mb or self.memory_mb <= available.memory_mb
        )


ANY_PROFILE = ResourceProfile()
"""Whatever slot there is."""

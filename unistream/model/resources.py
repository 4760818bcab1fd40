"""How much of a worker one slot needs (Flink's ResourceProfile, FLIP-56, for slot sharing groups)."""

from __future__ import annotations

import msgspec


class ResourceProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Resources of one slot, or of a whole worker.

    Attributes:
        cpu_cores: May be a fraction; 0: unknown.
        memory_mb: MiB of task, managed and network memory together; 0: unknown.
    """

    cpu_cores: float = 0.0
    memory_mb: int = 0

    @property
    def is_unknown(self) -> bool:
        """Any slot will do."""
        return not self.cpu_cores and not self.memory_mb

    def fits_in(self, available: ResourceProfile) -> bool:
        """Whether `available` is enough; an unknown amount of it is no limit."""
        return (not available.cpu_cores or self.cpu_cores <= available.cpu_cores) and (
            not available.memory_mb or self.memory_mb <= available.memory_mb
        )


class MachineResources(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker's process may use of its machine, with the limits of a container.

    Attributes:
        cpu_cores: A part of a core counts as one.
        memory_bytes: None: its system does not say it.
    """

    cpu_cores: int
    memory_bytes: int | None = None


ANY_PROFILE = ResourceProfile()
"""The profile that any slot fulfils."""

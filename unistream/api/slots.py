"""Slot sharing groups with resources."""

from __future__ import annotations

import math
from dataclasses import dataclass

from unistream.base.config import parse_bytes
from unistream.base.errors import ConfigError
from unistream.base.limits import MIB
from unistream.core.graph import check_group_name
from unistream.model.resources import ResourceProfile


@dataclass(frozen=True, slots=True)
class SlotSharingGroup:
    """Operators that may share slots, and the resources of one such slot.

    Args:
        name: ``default`` is the group of operators without one.
        cpu_cores: Of one slot, may be a fraction. Given together with `task_memory`, or not at all.
        task_memory: Of one slot, for user code, state and exchange buffers, such as ``"512 mb"``.

    Raises:
        ConfigError: no name or a reserved one, only one of the two amounts, or one that is not positive.

    >>> SlotSharingGroup("heavy", cpu_cores=0.5, task_memory="1 gb").profile.memory_mb
    1024
    """

    name: str
    cpu_cores: float | None = None
    task_memory: str | None = None

    def __post_init__(self) -> None:
        if not self.name or not isinstance(self.name, str):
            raise ConfigError("a slot sharing group needs a name")
        check_group_name(self.name)
        where = f"slot sharing group {self.name!r}"
        if (self.cpu_cores is None) != (self.task_memory is None):
            raise ConfigError(f"{where}: cpu_cores and task_memory are given together, or neither of them")
        cores, memory = self.cpu_cores, self.task_memory
        if cores is not None and (isinstance(cores, bool) or not isinstance(cores, int | float)):
            raise ConfigError(f"{where}: cpu_cores {cores!r} is not a number")
        if memory is not None and not isinstance(memory, str):
            raise ConfigError(f"{where}: task_memory {memory!r} is not an amount such as '512 mb'")
        if cores is not None and not (math.isfinite(cores) and cores > 0):
            raise ConfigError(f"{where}: cpu_cores {cores!r} is not above 0")
        if memory is not None and self.profile.memory_mb == 0:
            raise ConfigError(f"{where}: task_memory {memory!r} is not above 0")

    @property
    def profile(self) -> ResourceProfile:
        """Memory is rounded up to whole MiB."""
        try:
            size = 0 if self.task_memory is None else parse_bytes(self.task_memory)
        except ConfigError as error:
            raise ConfigError(f"slot sharing group {self.name!r}: task_memory {error}") from None
        return ResourceProfile(cpu_cores=self.cpu_cores or 0.0, memory_mb=-(-size // MIB))

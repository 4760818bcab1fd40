"""Which rows of an exchange, sent and not yet processed at a checkpoint, a subtask gets after a rescale."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from unistream.base.errors import ConfigError
from unistream.base.limits import KEY_GROUPS_MAX
from unistream.model.graph import Ship
from unistream.model.key_groups import key_group_range, subtask_of_key_group


class Redistribution(Enum):
    """Which old subtasks' rows a new one reads (Flink's `SubtaskStateMapper`)."""

    RANGE = "RANGE"  # those that share key groups with it
    ROUND_ROBIN = "ROUND_ROBIN"  # every n-th
    FULL = "FULL"  # all of them
    FIRST = "FIRST"  # the first new one: all of them
    ARBITRARY = "ARBITRARY"  # any; in turn
    UNSUPPORTED = "UNSUPPORTED"

    @property
    def is_ambiguous(self) -> bool:
        """Several new subtasks read the rows of the same old one, and each must skip those of the others."""
        return self in (Redistribution.RANGE, Redistribution.FULL)

    def old_subtasks(self, index: int, *, old: int, new: int) -> tuple[int, ...]:
        """Old subtasks (of `old`) whose rows new subtask `index` (of `new`) reads, ascending.

        Raises:
            ConfigError: rows of this kind cannot be redistributed.

        >>> [Redistribution.RANGE.old_subtasks(i, old=2, new=3) for i in range(3)]
        [(0,), (0, 1), (1,)]
        """
        match self:
            case Redistribution.RANGE:
                # over all possible key groups: at most one neighbour too many, whose rows are filtered
                first, last = key_group_range(KEY_GROUPS_MAX, new, index)
                return tuple(
                    range(
                        subtask_of_key_group(KEY_GROUPS_MAX, old, first),
                        subtask_of_key_group(KEY_GROUPS_MAX, old, last) + 1,
                    )
                )
            case Redistribution.ROUND_ROBIN | Redistribution.ARBITRARY:
                return tuple(range(index, old, new))
            case Redistribution.FULL:
                return tuple(range(old))
            case Redistribution.FIRST:
                return tuple(range(old)) if index == 0 else ()
            case Redistribution.UNSUPPORTED:
                raise ConfigError("rows of this kind of edge cannot be redistributed to another parallelism")


OF_PRODUCERS: Final = Redistribution.ARBITRARY
"""The producer that had sent a row is irrelevant."""

_OF_CONSUMERS: Final[Mapping[Ship, Redistribution]] = {
    Ship.HASH: Redistribution.RANGE,
    Ship.REBALANCE: Redistribution.ROUND_ROBIN,
    Ship.GLOBAL: Redistribution.FIRST,
    Ship.BROADCAST: Redistribution.UNSUPPORTED,
    Ship.FORWARD: Redistribution.UNSUPPORTED,
    Ship.RESCALE: Redistribution.UNSUPPORTED,
}


def redistribution(ship: Ship) -> Redistribution:
    """How in-flight rows of such an edge reach consumers of another parallelism."""
    return _OF_CONSUMERS[ship]


def may_overtake(ship: Ship) -> bool:
    """A barrier may overtake rows of such an edge: they could be restored at any parallelism."""
    return redistribution(ship) is not Redistribution.UNSUPPORTED

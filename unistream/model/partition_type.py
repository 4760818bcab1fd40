"""Kinds of result partitions (Flink's ResultPartitionType): when they may be read, and who releases them.

The runtime produces PIPELINED_BOUNDED (a stream), BLOCKING (a spilled file, read when it is complete) and
BLOCKING_REPORTED (committables of a batch job, kept by the master; Flink has no such type). The rules of
planning, scheduling and failover cover all types.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class PartitionType(Enum):
    """Type of an exchange between two vertices."""

    BLOCKING = "BLOCKING"
    BLOCKING_PERSISTENT = "BLOCKING_PERSISTENT"
    BLOCKING_REPORTED = "BLOCKING_REPORTED"
    PIPELINED = "PIPELINED"
    PIPELINED_BOUNDED = "PIPELINED_BOUNDED"
    PIPELINED_APPROXIMATE = "PIPELINED_APPROXIMATE"
    HYBRID_FULL = "HYBRID_FULL"
    HYBRID_SELECTIVE = "HYBRID_SELECTIVE"

    @property
    def must_be_pipelined(self) -> bool:
        """Producer and consumer run at the same time: they are in one region."""
        return self in _MUST_BE_PIPELINED

    @property
    def is_blocking(self) -> bool:
        """A consumer starts when all of it has been produced."""
        return self in _BLOCKING

    @property
    def is_reconsumable(self) -> bool:
        """It can be read again, so its producer need not restart with a failed consumer."""
        return self in _RECONSUMABLE

    @property
    def is_bounded(self) -> bool:
        """A slow consumer slows its producer down: the number of buffers between them is limited."""
        return self in _BOUNDED

    @property
    def is_persistent(self) -> bool:
        """It outlives the job."""
        return self is PartitionType.BLOCKING_PERSISTENT

    @property
    def is_reported(self) -> bool:
        """Its producer reports it to the master, which keeps it: the loss of a worker does not lose it."""
        return self is PartitionType.BLOCKING_REPORTED

    @property
    def is_released_by_scheduler(self) -> bool:
        """It outlives its producer; the scheduler releases it when no consumer needs it."""
        return self in _RELEASED_BY_SCHEDULER


_P = PartitionType
_STORED: Final = frozenset({_P.BLOCKING, _P.BLOCKING_PERSISTENT})
_BLOCKING: Final = _STORED | {_P.BLOCKING_REPORTED}
_MUST_BE_PIPELINED: Final = frozenset({_P.PIPELINED, _P.PIPELINED_BOUNDED})
_BOUNDED: Final = frozenset({_P.PIPELINED_BOUNDED, _P.PIPELINED_APPROXIMATE})
_RECONSUMABLE: Final = _BLOCKING | {_P.HYBRID_FULL}
_RELEASED_BY_SCHEDULER: Final = _STORED | {_P.HYBRID_FULL, _P.HYBRID_SELECTIVE}

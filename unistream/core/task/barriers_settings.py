"""What a job's options say of its barriers: how they are sent, and who handles them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from unistream.base import config as options
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.core.task.alignment import BarrierAligner
from unistream.core.task.barriers import BarrierHandler
from unistream.core.task.barriers_alternating import AlternatingAligner
from unistream.core.task.barriers_tracker import BarrierTracker
from unistream.model.elements import Alignment, CheckpointBarrier


@dataclass(frozen=True, slots=True)
class BarrierSettings:
    """`timeout_ms`: of unaligned checkpoints; 0: they are never aligned."""

    exactly_once: bool = True
    unaligned: bool = False
    timeout_ms: int = 0

    @classmethod
    def of(cls, config: Configuration) -> BarrierSettings:
        """As configured.

        Raises:
            ConfigError: unaligned checkpoints without exactly once, for which they would do nothing.

        >>> BarrierSettings.of(Configuration())
        BarrierSettings(exactly_once=True, unaligned=False, timeout_ms=0)
        """
        mode = config.get(options.CHECKPOINT_MODE)
        unaligned = config.get(options.UNALIGNED_ENABLED)
        if unaligned and mode != "EXACTLY_ONCE":
            raise ConfigError(
                f"{options.UNALIGNED_ENABLED.key} is true and {options.CHECKPOINT_MODE.key} is {mode}: "
                "without alignment nothing is overtaken; leave one of the two out"
            )
        return cls(mode == "EXACTLY_ONCE", unaligned, config.get(options.ALIGNED_TIMEOUT))

    def handler(self, channels: int) -> BarrierHandler:
        """For a task with so many input channels."""
        if not self.exactly_once:
            return BarrierTracker(channels)
        return AlternatingAligner(channels) if self.unaligned else BarrierAligner(channels)

    def stamped(self, barrier: CheckpointBarrier) -> CheckpointBarrier:
        """`barrier` as a source sends it: a savepoint's never overtakes, so that it can be restored at any
        parallelism and by a changed pipeline."""
        if not self.unaligned or barrier.kind.is_savepoint:
            return barrier
        if self.timeout_ms:
            return replace(barrier, timeout_ms=self.timeout_ms)
        return replace(barrier, alignment=Alignment.UNALIGNED)

"""How barriers are sent and handled, by the options of a job. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from unistream.base import config as options
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.core.task.alignment import BarrierAligner
from unistream.core.task.barriers import BarrierHandler
from unistream.core.task.barriers_alternating import AlternatingAligner
from unistream.core.task.barriers_tracker import BarrierTracker
from unistream.model.elements import AlignmentType, CheckpointBarrier


@dataclass(frozen=True, slots=True)
class BarrierSettings:
    """The options of one job.

    Attributes:
        timeout_ms: Of the alignment with unaligned checkpoints; 0: they are never aligned.
        after_tasks_finish: False: a checkpoint in which an input ends is given up.
    """

    exactly_once: bool = True
    unaligned: bool = False
    timeout_ms: int = 0
    after_tasks_finish: bool = True

    @classmethod
    def of(cls, config: Configuration) -> BarrierSettings:
        """The settings that a job's options make.

        Raises:
            ConfigError: unaligned checkpoints without exactly once, where they would have no effect.

        >>> BarrierSettings.of(Configuration())
        BarrierSettings(exactly_once=True, unaligned=False, timeout_ms=0, after_tasks_finish=True)
        """
        mode = config.get(options.CHECKPOINT_MODE)
        unaligned = config.get(options.UNALIGNED_ENABLED)
        if unaligned and mode != "EXACTLY_ONCE":
            raise ConfigError(
                f"{options.UNALIGNED_ENABLED.key} is true and {options.CHECKPOINT_MODE.key} is {mode}: "
                "without alignment no barrier overtakes; remove one of the two"
            )
        return cls(
            exactly_once=mode == "EXACTLY_ONCE",
            unaligned=unaligned,
            timeout_ms=config.get(options.ALIGNED_TIMEOUT),
            after_tasks_finish=config.get(options.CHECKPOINTS_AFTER_TASKS_FINISH),
        )

    def handler(self, channels: int, *, committables: bool = False) -> BarrierHandler:
        """A handler for a task with so many channels. `committables`: they carry those of a sink, which
        belong to one checkpoint each. There are few, and no row waits for them: they are aligned in any mode,
        so that a snapshot does not list what is staged for a later one."""
        if not self.exactly_once and not committables:
            return BarrierTracker(channels, after_tasks_finish=self.after_tasks_finish)
        if self.unaligned:
            return AlternatingAligner(channels, after_tasks_finish=self.after_tasks_finish)
        return BarrierAligner(channels, after_tasks_finish=self.after_tasks_finish)

    def stamped(self, barrier: CheckpointBarrier) -> CheckpointBarrier:
        """`barrier` as a source sends it. A savepoint's never overtakes, so that it can be restored at any
        parallelism and by a changed pipeline."""
        if not self.unaligned or barrier.kind.is_savepoint:
            return barrier
        if self.timeout_ms:
            return replace(barrier, timeout_ms=self.timeout_ms)
        return replace(barrier, alignment=AlignmentType.UNALIGNED)

"""Everything about a job that is decided before it starts, parsed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from unistream.base import config as options
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId, JobId, LeaderEpoch, LineageId
from unistream.core.adaptive import AdaptiveSettings
from unistream.core.barriers_settings import BarrierSettings
from unistream.core.restart_backoff import Draw, RestartBackoff, restart_backoff_from_config
from unistream.model.snapshot import Manifest

FIRST_CHECKPOINT: Final = CheckpointId(1)
CHECKPOINT_INTERVAL_MS_MIN: Final = 10  # as Flink; below it a job does nothing but checkpoints


class Retention(Enum):
    """What happens to a job's checkpoints at its end; a FINISHED job never keeps them."""

    NO_EXTERNALIZED_CHECKPOINTS = "NO_EXTERNALIZED_CHECKPOINTS"
    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"  # kept when cancelled or failed
    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"  # kept when failed


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePoint:
    """A snapshot to start from.

    Attributes:
        directory: fsspec URL; where it lies now.
        owned: It is one of this job's own checkpoints (recovery), so retention applies to it.
            False: the user's (a savepoint, another job's checkpoint); it is never deleted.
    """

    directory: str
    manifest: Manifest
    owned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """What `JobMachine` needs besides the graph. Durations in ms.

    Attributes:
        lineage: Made at a fresh start; must be the manifest's when there is a restore point.
        artifact: SHA-256 (hex) of the user code.
        checkpoint_root: fsspec URL of the checkpoint storage.
        checkpoints_history: Snapshots whose figures are remembered whole.
        checkpoint_interval_ms: None = checkpointing is off (savepoints still work).
        allow_non_restored: State whose operator is gone is dropped instead of refused.
        first_checkpoint_id: No id below it is given out; one past the highest directory that is
            known of an earlier leader.
        create_backoff: Makes the job's restart strategy.
        adaptive: None: the job runs at the parallelism that it was given, or not at all.
    """

    job: JobId
    lineage: LineageId
    epoch: LeaderEpoch
    artifact: str
    checkpoint_root: str
    create_backoff: Callable[[], RestartBackoff]
    checkpoint_interval_ms: int | None
    checkpoint_timeout_ms: int
    checkpoint_min_pause_ms: int
    concurrent_checkpoints_max: int
    unaligned_checkpoints: bool
    tolerable_checkpoint_failures: int
    checkpoints_after_finish: bool
    checkpoints_retained: int
    checkpoints_history: int
    retention: Retention
    slot_request_timeout_ms: int
    slot_idle_timeout_ms: int
    scheduling_strategy: str
    failover_strategy: str
    adaptive: AdaptiveSettings | None
    cancellation_timeout_ms: int
    allow_non_restored: bool = False
    first_checkpoint_id: CheckpointId = FIRST_CHECKPOINT

    @classmethod
    def from_config(
        cls,
        config: Configuration,
        *,
        job: JobId,
        lineage: LineageId,
        epoch: LeaderEpoch,
        artifact: str,
        checkpoint_root: str,
        draw: Draw,
        allow_non_restored: bool = False,
        first_checkpoint_id: CheckpointId = FIRST_CHECKPOINT,
    ) -> JobSettings:
        """Reads the job's options (cluster configuration with the job's own merged on top).

        Raises:
            ConfigError: a value is out of its range; names the key.
        """
        interval = config.find(options.CHECKPOINT_INTERVAL)
        if interval is not None and interval < CHECKPOINT_INTERVAL_MS_MIN:
            raise ConfigError(
                f"{options.CHECKPOINT_INTERVAL.key}: {interval} ms, least {CHECKPOINT_INTERVAL_MS_MIN} ms"
            )
        return cls(
            job=job,
            lineage=lineage,
            epoch=epoch,
            artifact=artifact,
            checkpoint_root=checkpoint_root,
            create_backoff=lambda: restart_backoff_from_config(config, draw),
            checkpoint_interval_ms=interval,
            checkpoint_timeout_ms=_at_least(config, options.CHECKPOINT_TIMEOUT, 1),
            checkpoint_min_pause_ms=config.get(options.CHECKPOINT_MIN_PAUSE),
            concurrent_checkpoints_max=_concurrent_max(config),
            unaligned_checkpoints=config.get(options.UNALIGNED_ENABLED),
            tolerable_checkpoint_failures=_at_least(config, options.CHECKPOINT_TOLERABLE_FAILURES, 0),
            checkpoints_after_finish=config.get(options.CHECKPOINTS_AFTER_TASKS_FINISH),
            checkpoints_retained=_at_least(config, options.CHECKPOINTS_RETAINED, 1),
            checkpoints_history=config.get(options.CHECKPOINTS_HISTORY),
            retention=Retention(config.get(options.CHECKPOINT_RETENTION)),
            slot_request_timeout_ms=_at_least(config, options.SLOT_REQUEST_TIMEOUT, 1),
            slot_idle_timeout_ms=_at_least(config, options.SLOT_IDLE_TIMEOUT, 0),
            scheduling_strategy=config.get(options.SCHEDULING_STRATEGY),
            failover_strategy=config.get(options.FAILOVER_STRATEGY),
            adaptive=AdaptiveSettings.from_config(config)
            if config.get(options.SCHEDULER) == "adaptive"
            else None,
            cancellation_timeout_ms=_at_least(config, options.CANCELLATION_TIMEOUT, 1),
            allow_non_restored=allow_non_restored or config.get(options.IGNORE_UNCLAIMED_STATE),
            first_checkpoint_id=first_checkpoint_id,
        )

    @property
    def checkpointing(self) -> bool:
        """Periodic checkpoints are taken: decides how a task ends and when sinks commit."""
        return self.checkpoint_interval_ms is not None


def _concurrent_max(config: Configuration) -> int:
    BarrierSettings.of(config)  # says what does not go together
    number = config.get(options.CHECKPOINT_MAX_CONCURRENT)
    if number > 1 and config.get(options.UNALIGNED_ENABLED):
        raise ConfigError(
            f"{options.CHECKPOINT_MAX_CONCURRENT.key} is {number}; it must be 1 with "
            f"{options.UNALIGNED_ENABLED.key}: true"
        )
    return number


def _at_least(config: Configuration, option: options.ConfigOption[int], least: int) -> int:
    value = config.get(option)
    if value < least:
        raise ConfigError(f"{option.key}: {value} is less than {least}")
    return value

"""The settings of a job, read once from its options."""

from __future__ import annotations

from typing import Final

from unistream.base import config as options
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId, JobId, LeaderEpoch, LineageId
from unistream.core.contract import (
    FIRST_CHECKPOINT,
    AdaptiveSettings,
    ExternalizedCheckpointRetention,
    JobSettings,
)
from unistream.core.execution import Draw, restart_backoff_from_config
from unistream.core.task import BarrierSettings
from unistream.model.stored_job import NOTHING_USED, AttemptCounter, Sealed

CHECKPOINT_INTERVAL_MS_MIN: Final = 10  # as Flink; below it a job does nothing but checkpoints


def job_settings(
    config: Configuration,
    *,
    job: JobId,
    lineage: LineageId,
    epoch: LeaderEpoch,
    artifact: str,
    checkpoint_root: str,
    draw: Draw,
    batch: bool = False,
    allow_non_restored: bool = False,
    first_checkpoint_pause_ms: int = 0,
    first_checkpoint_id: CheckpointId = FIRST_CHECKPOINT,
    offloads: bool = False,
    used: AttemptCounter = NOTHING_USED,
    sealed: Sealed | None = None,
) -> JobSettings:
    """Reads the job's options (cluster configuration with the job's own merged on top). `batch`: of a BATCH
    job. `first_checkpoint_pause_ms`, `offloads`, `used`, `sealed`: as in `JobSettings`.

    Raises:
        ConfigError: a value is out of its range; names the key.
    """
    interval = _interval_ms(config)
    return JobSettings(
        job=job,
        lineage=lineage,
        epoch=epoch,
        artifact=artifact,
        checkpoint_root=checkpoint_root,
        create_backoff=lambda: restart_backoff_from_config(config, draw, batch=batch),
        restarts_user_errors=not batch or config.find(options.RESTART_STRATEGY) is not None,
        checkpoint_interval_ms=interval,
        checkpoint_backlog_interval_ms=_backlog_interval_ms(config, interval),
        checkpoint_timeout_ms=_at_least(config, options.CHECKPOINT_TIMEOUT, 1),
        first_checkpoint_pause_ms=first_checkpoint_pause_ms,
        checkpoint_min_pause_ms=config.get(options.CHECKPOINT_MIN_PAUSE),
        concurrent_checkpoints_max=_concurrent_max(config),
        unaligned_checkpoints=config.get(options.UNALIGNED_ENABLED),
        tolerable_checkpoint_failures=_at_least(config, options.CHECKPOINT_TOLERABLE_FAILURES, 0),
        checkpoints_after_finish=config.get(options.CHECKPOINTS_AFTER_TASKS_FINISH),
        checkpoints_retained=_at_least(config, options.CHECKPOINTS_RETAINED, 1),
        checkpoints_history=config.get(options.CHECKPOINTS_HISTORY),
        retention=ExternalizedCheckpointRetention(config.get(options.CHECKPOINT_RETENTION)),
        slot_request_timeout_ms=_at_least(config, options.SLOT_REQUEST_TIMEOUT, 1),
        slot_idle_timeout_ms=_at_least(config, options.SLOT_IDLE_TIMEOUT, 0),
        scheduling_strategy=config.get(options.SCHEDULING_STRATEGY),
        failover_strategy=config.get(options.FAILOVER_STRATEGY),
        adaptive=_adaptive(config) if config.get(options.SCHEDULER) == "adaptive" else None,
        cancellation_timeout_ms=_at_least(config, options.CANCELLATION_TIMEOUT, 1),
        allow_non_restored=allow_non_restored or config.get(options.IGNORE_UNCLAIMED_STATE),
        first_checkpoint_id=first_checkpoint_id,
        offloads=offloads,
        used=used,
        sealed=sealed,
    )


def _interval_ms(config: Configuration) -> int | None:
    interval = config.find(options.CHECKPOINT_INTERVAL)
    if interval is not None and interval < CHECKPOINT_INTERVAL_MS_MIN:
        raise ConfigError(
            f"{options.CHECKPOINT_INTERVAL.key}: {interval} ms, least {CHECKPOINT_INTERVAL_MS_MIN} ms"
        )
    return interval


def _backlog_interval_ms(config: Configuration, interval_ms: int | None) -> int | None:
    """None: as without a backlog."""
    found = config.find(options.CHECKPOINT_INTERVAL_DURING_BACKLOG)
    if found and interval_ms is not None and found < interval_ms:
        raise ConfigError(
            f"{options.CHECKPOINT_INTERVAL_DURING_BACKLOG.key}: {found} ms is less than "
            f"{options.CHECKPOINT_INTERVAL.key} ({interval_ms} ms); it must be 0 (no checkpoints during a "
            "backlog) or at least that"
        )
    return found


def _adaptive(config: Configuration) -> AdaptiveSettings:
    return AdaptiveSettings(
        wait_ms=config.get(options.RESOURCE_WAIT_TIMEOUT),
        stable_ms=config.get(options.RESOURCE_STABILIZATION_TIMEOUT),
        cooldown_ms=config.get(options.RESCALE_COOLDOWN),
        running_stable_ms=config.get(options.RESCALE_STABILIZATION_TIMEOUT),
    )


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

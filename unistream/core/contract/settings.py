"""Everything about a job that is decided before it starts; `core.job.settings` reads it from the options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from unistream.base.ids import CheckpointId, JobId, LeaderEpoch, LineageId
from unistream.model.snapshot import Manifest

FIRST_CHECKPOINT: Final = CheckpointId(1)


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


class RestartBackoff(Protocol):
    """Times are ms of any one clock that never goes back."""

    def notify_failure(self, now_ms: int) -> bool:
        """Counts a failure; False: it is part of the restart that an earlier one has announced."""
        ...

    @property
    def can_restart(self) -> bool:
        """As of the last failure."""
        ...

    def backoff_ms(self, now_ms: int) -> int:
        """Wait from now until the restart; 0 when it is due. There was a failure, or it is a defect."""
        ...

    def describe(self) -> str:
        """Name and parameters, for people."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveSettings:
    """`jobmanager.adaptive-scheduler.*`, all in ms."""

    wait_ms: int
    stable_ms: int
    cooldown_ms: int
    running_stable_ms: int


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

    @property
    def checkpointing(self) -> bool:
        """Periodic checkpoints are taken: decides how a task ends and when sinks commit."""
        return self.checkpoint_interval_ms is not None

"""The settings of a job, which never change; `core.job.settings` reads them from the options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from unistream.base.ids import CheckpointId, JobId, LeaderEpoch, LineageId
from unistream.model.snapshot import Manifest
from unistream.model.stored_job import NO_TOTALS, NOTHING_USED, AttemptCounter, Sealed, TotalsSoFar

FIRST_CHECKPOINT: Final = CheckpointId(1)


class ExternalizedCheckpointRetention(Enum):
    """Whether checkpoints are kept at the end of the job; a FINISHED job never keeps them."""

    NO_EXTERNALIZED_CHECKPOINTS = "NO_EXTERNALIZED_CHECKPOINTS"
    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"  # kept when canceled or failed
    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"  # kept when failed


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePoint:
    """A snapshot to start from.

    Attributes:
        directory: fsspec URL of its current location.
        owned: One of this job's own checkpoints (recovery), to which retention applies. False: the user's (a
            savepoint, another job's checkpoint); it is never deleted.
        concludes: It is the savepoint of this job's stop, which is final: the job starts from it only to
            commit what it lists, and is then FINISHED.
        older: Earlier snapshots of this job that are kept, oldest first.
        totals: Of this job under earlier leaders.
    """

    directory: str
    manifest: Manifest
    owned: bool
    concludes: bool = False
    older: tuple[RestorePoint, ...] = ()
    totals: TotalsSoFar = NO_TOTALS


class RestartBackoff(Protocol):
    """Times are ms of one clock that never goes back."""

    def notify_failure(self, now_ms: int) -> bool:
        """Counts a failure; False: it is part of the restart that an earlier one has announced."""
        ...

    @property
    def can_restart(self) -> bool:
        """Whether the job restarts after the last failure."""
        ...

    def backoff_ms(self, now_ms: int) -> int:
        """Wait from now until the restart; 0 if it is due. Only after a failure."""
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
    """Durations in ms.

    Attributes:
        lineage: New at a fresh start; that of the manifest if there is a restore point.
        artifact: SHA-256 (hex) of the user code.
        checkpoint_root: fsspec URL of the checkpoint storage.
        checkpoints_history: How many snapshots are kept with all their figures.
        checkpoint_interval_ms: None = checkpointing is off (savepoints still work).
        first_checkpoint_pause_ms: Least time in which all tasks have run at the first periodic checkpoint.
        checkpoint_backlog_interval_ms: While a source reads a backlog; 0 = none, None = as always.
        allow_non_restored: State without an operator is dropped instead of refused.
        first_checkpoint_id: No lower id is used; one past the highest directory of an earlier leader.
        sealed: A BATCH job starts behind this: only what is left of its commits is done.
        used: Attempts and restarts under earlier leaders; those of this one follow.
        create_backoff: Makes the job's restart strategy.
        restarts_user_errors: False: the job fails at the first error of a user's function.
        offloads: An engine runs the bounded part of the job.
        adaptive: None: the job has the default scheduler.
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
    retention: ExternalizedCheckpointRetention
    slot_request_timeout_ms: int
    slot_idle_timeout_ms: int
    scheduling_strategy: str
    failover_strategy: str
    adaptive: AdaptiveSettings | None
    cancellation_timeout_ms: int
    allow_non_restored: bool = False
    first_checkpoint_pause_ms: int = 0
    checkpoint_backlog_interval_ms: int | None = None
    restarts_user_errors: bool = True
    offloads: bool = False
    first_checkpoint_id: CheckpointId = FIRST_CHECKPOINT
    used: AttemptCounter = NOTHING_USED
    sealed: Sealed | None = None

    @property
    def checkpointing(self) -> bool:
        """Periodic checkpoints are on: decides how a task ends and when sinks commit."""
        return self.checkpoint_interval_ms is not None

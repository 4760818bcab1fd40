"""What the answers about snapshots hold, as types; see `unistream.rest.shapes`."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

Status = Literal["IN_PROGRESS", "COMPLETED", "FAILED"]
Taken = Literal["CHECKPOINT", "UNALIGNED_CHECKPOINT", "SAVEPOINT", "SYNC_SAVEPOINT"]
Quantile = float | Literal["NaN"]
""""NaN", as text, where there was no snapshot yet."""


class SpreadShown(TypedDict):
    """How a figure is spread over snapshots or subtasks."""

    min: int
    max: int
    avg: int
    p50: Quantile
    p90: Quantile
    p95: Quantile
    p99: Quantile
    p999: Quantile


class Totals(TypedDict):
    """Bytes over all subtasks, and when the last one has acknowledged."""

    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    alignment_buffered: int
    processed_data: int
    persisted_data: int


class VertexOfCheckpoint(Totals):
    """A snapshot of one vertex."""

    id: int
    status: Status
    end_to_end_duration: int
    num_subtasks: int
    num_acknowledged_subtasks: int


class CheckpointShown(Totals):
    """One snapshot. `tasks`: empty in lists. From `external_path` on: if it is complete, or has failed."""

    className: Literal["in_progress", "completed", "failed"]
    id: int
    status: Status
    is_savepoint: bool
    savepointFormat: str | None
    trigger_timestamp: int
    end_to_end_duration: int
    num_subtasks: int
    num_acknowledged_subtasks: int
    checkpoint_type: Taken
    tasks: dict[str, VertexOfCheckpoint]
    external_path: NotRequired[str | None]
    discarded: NotRequired[bool]
    failure_timestamp: NotRequired[int]
    failure_message: NotRequired[str | None]


class RestoredShown(TypedDict):
    """The snapshot that tasks were last restored from."""

    id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: str | None


class Counts(TypedDict):
    """How many snapshots of the job are in which state."""

    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


class Summary(TypedDict):
    """Spreads of the figures of all complete snapshots."""

    checkpointed_size: SpreadShown
    state_size: SpreadShown
    end_to_end_duration: SpreadShown
    alignment_buffered: SpreadShown
    processed_data: SpreadShown
    persisted_data: SpreadShown


class Latest(TypedDict):
    """The newest of each kind."""

    completed: CheckpointShown | None
    savepoint: CheckpointShown | None
    failed: CheckpointShown | None
    restored: RestoredShown | None


class Checkpoints(TypedDict):
    """The snapshots of a job, the newest first."""

    counts: Counts
    summary: Summary
    latest: Latest
    history: list[CheckpointShown]


SpreadOfDurations = TypedDict("SpreadOfDurations", {"sync": SpreadShown, "async": SpreadShown})
Durations = TypedDict("Durations", {"sync": int, "async": int})


class AlignmentSpread(TypedDict):
    """Bytes, and ms."""

    buffered: SpreadShown
    processed: SpreadShown
    persisted: SpreadShown
    duration: SpreadShown


class Alignment(TypedDict):
    """Bytes, and ms."""

    buffered: int
    processed: int
    persisted: int
    duration: int


class SummaryOfSubtasks(TypedDict):
    """Spreads of the figures of one vertex's subtasks."""

    checkpointed_size: SpreadShown
    state_size: SpreadShown
    end_to_end_duration: SpreadShown
    checkpoint_duration: SpreadOfDurations
    alignment: AlignmentSpread
    start_delay: SpreadShown


class SubtaskOfCheckpoint(TypedDict):
    """What a subtask's acknowledgement said; of one that has not acknowledged the first three alone."""

    className: Literal["completed", "pending"]
    index: int
    status: Literal["completed", "pending_or_failed"]
    ack_timestamp: NotRequired[int]
    end_to_end_duration: NotRequired[int]
    checkpointed_size: NotRequired[int]
    state_size: NotRequired[int]
    checkpoint: NotRequired[Durations]
    alignment: NotRequired[Alignment]
    start_delay: NotRequired[int]
    unaligned_checkpoint: NotRequired[bool]
    aborted: NotRequired[bool]


class VertexDetails(VertexOfCheckpoint):
    """A snapshot of one vertex, with its subtasks."""

    summary: SummaryOfSubtasks
    subtasks: list[SubtaskOfCheckpoint]


class Externalization(TypedDict):
    """Whether checkpoints stay when the job ends."""

    enabled: bool
    delete_on_cancellation: bool


class CheckpointConfig(TypedDict):
    """How a job takes checkpoints; ms."""

    mode: Literal["exactly_once", "at_least_once"]
    interval: int
    timeout: int
    min_pause: int
    max_concurrent: int
    externalization: Externalization
    state_backend: str
    checkpoint_storage: str
    unaligned_checkpoints: bool
    tolerable_failed_checkpoints: int
    aligned_checkpoint_timeout: int
    checkpoints_after_tasks_finish: bool
    state_changelog_enabled: bool
    changelog_periodic_materialization_interval: int
    changelog_storage: str

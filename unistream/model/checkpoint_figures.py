"""What people and programs learn of a job's snapshots: how long each part took, and how much was written.

Durations in ms, sizes in bytes, as in Flink's checkpoint statistics (`rest` gives them its REST API's names).
"""

from __future__ import annotations

from enum import Enum

import msgspec

from unistream.base.ids import CheckpointId, VertexId
from unistream.model.positions import SourcePositions
from unistream.model.snapshot_kind import SavepointFormat, SnapshotKind


class SnapshotStatus(Enum):
    """The state of a snapshot. Values are the JSON of the statistics."""

    IN_PROGRESS = "in progress"
    COMPLETED = "completed"
    FAILED = "failed"

    @property
    def recorded(self) -> str:
        """The status's name in `JobInfo` and in the database."""
        return "triggered" if self is SnapshotStatus.IN_PROGRESS else self.value


class SubtaskFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one subtask's acknowledgement said.

    Attributes:
        acked_after_ms: From the start of the snapshot to this acknowledgement.
        start_delay_ms: From the barrier's creation to its first arrival here.
        alignment_ms: From the first barrier to the last; 0 at a source.
        sync_ms: The task stood still.
        async_ms: State, and rows in flight, were written in the background: the longer of the two.
        processed_bytes: Rows taken in while the alignment lasted.
        persisted_bytes: Rows in flight that became part of the snapshot.
        state_bytes: The whole state. `new_bytes`: what of it was written for this snapshot.
    """

    index: int
    acked_after_ms: int
    start_delay_ms: int = 0
    alignment_ms: int = 0
    sync_ms: int = 0
    async_ms: int = 0
    processed_bytes: int = 0
    persisted_bytes: int = 0
    state_bytes: int = 0
    new_bytes: int = 0
    unaligned: bool = False


class VertexFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Subtasks of one vertex that have acknowledged, by index. `missing`: those that have not (yet)."""

    vertex: VertexId
    name: str
    subtasks: tuple[SubtaskFigures, ...] = ()
    missing: tuple[int, ...] = ()

    @property
    def expected(self) -> int:
        """How many take part."""
        return len(self.subtasks) + len(self.missing)


class CheckpointFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one snapshot, from the coordinator to the database and the statistics.

    Attributes:
        format: The format, if this is a savepoint; None if it was read from the database.
        timestamp_ms: Wall clock at its start.
        duration_ms: From its start to its end; while in progress, until now.
        path: Its directory, once that has a name.
        reason: Why it failed.
        vertices: Empty until its tasks were triggered, in the journal and in the database.
        recorded_bytes: The size of its state where `vertices` is empty.
        discarded: It was complete, and newer snapshots have replaced it.
        read: Of a completed one, up to where sources were read; not in the database.
    """

    checkpoint_id: CheckpointId
    kind: SnapshotKind
    status: SnapshotStatus
    timestamp_ms: int
    duration_ms: int
    path: str | None = None
    reason: str | None = None
    vertices: tuple[VertexFigures, ...] = ()
    recorded_bytes: int = 0
    discarded: bool = False
    format: SavepointFormat | None = SavepointFormat.CANONICAL
    read: tuple[SourcePositions, ...] = ()

    @property
    def recorded_duration_ms(self) -> int | None:
        """The duration as `JobInfo` and the database have it: None while the snapshot is in progress."""
        return None if self.status is SnapshotStatus.IN_PROGRESS else self.duration_ms

    @property
    def subtasks(self) -> tuple[SubtaskFigures, ...]:
        return tuple(subtask for vertex in self.vertices for subtask in vertex.subtasks)

    @property
    def expected(self) -> int:
        return sum(vertex.expected for vertex in self.vertices)

    @property
    def state_bytes(self) -> int:
        return sum(subtask.state_bytes for subtask in self.subtasks) or self.recorded_bytes

    @property
    def new_bytes(self) -> int:
        return sum(subtask.new_bytes for subtask in self.subtasks)

    @property
    def processed_bytes(self) -> int:
        return sum(subtask.processed_bytes for subtask in self.subtasks)

    @property
    def persisted_bytes(self) -> int:
        return sum(subtask.persisted_bytes for subtask in self.subtasks)

    @property
    def alignment_ms(self) -> int:
        """The longest one of its subtasks."""
        return max((subtask.alignment_ms for subtask in self.subtasks), default=0)


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """How a figure is spread over all snapshots. The quantiles are of the last ones only."""

    min: int
    max: int
    average: float
    p50: float
    p90: float
    p95: float
    p99: float
    p999: float


class RestoredFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshot that tasks were last restored from. `restored_ms`: wall clock."""

    checkpoint_id: CheckpointId
    kind: SnapshotKind
    path: str
    restored_ms: int


class CheckpointsInfo(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a job's snapshots.

    Attributes:
        restored: How often tasks were started from one.
        latest: The newest ones, newest first; older ones are only counted.
        summary: Figure -> spread over completed snapshots: state_bytes, new_bytes, duration_ms,
            processed_bytes, persisted_bytes.
    """

    completed: int = 0
    failed: int = 0
    in_progress: int = 0
    restored: int = 0
    latest: tuple[CheckpointFigures, ...] = ()
    latest_completed: CheckpointFigures | None = None
    latest_savepoint: CheckpointFigures | None = None
    latest_failed: CheckpointFigures | None = None
    latest_restored: RestoredFigures | None = None
    summary: dict[str, Spread] = {}

    def find(self, checkpoint_id: CheckpointId) -> CheckpointFigures | None:
        """One of those that are known in full."""
        latest = (self.latest_completed, self.latest_savepoint, self.latest_failed)
        known = (*self.latest, *(figures for figures in latest if figures is not None))
        return next((figures for figures in known if figures.checkpoint_id == checkpoint_id), None)

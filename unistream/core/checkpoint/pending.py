"""One snapshot that is under way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from unistream.base.ids import AttemptId, CheckpointId, SubtaskId, VertexId
from unistream.core.checkpoint.plan import CheckpointPlan
from unistream.core.checkpoint.positions import read_positions, recorded_positions
from unistream.core.checkpoint.result import vertex_snapshot
from unistream.core.contract import JobSettings, SnapshotRequest, Timer, TimerKind
from unistream.core.execution import Executions
from unistream.model.graph import JobGraph
from unistream.model.messages import CheckpointAcked
from unistream.model.positions import SourcePositions
from unistream.model.snapshot import Manifest
from unistream.model.snapshot_kind import SnapshotKind

LATE_SHOWN_MAX: Final = 5  # names in one message; the figures of the checkpoint list all


class CheckpointPhase(Enum):
    """How far a snapshot is. The value is for people."""

    PREPARING = "preparing"  # its directory is being named
    DELIVERING = "delivering"  # splits on their way to readers must arrive first
    TRIGGERED = "triggered"  # tasks take it
    FINALIZING = "finalizing"  # its manifest is being written: it may exist from here on


@dataclass(slots=True, kw_only=True, eq=False)
class PendingCheckpoint:
    """State of one snapshot.

    Attributes:
        participants: Attempts that take part; messages of any other are ignored.
        restored_finished: Participants whose vertex had finished before the job was restored.
        triggers: Tokens of `TriggerCheckpoint`s that no task has answered.
        triggered: Tasks that were sent one.
        acks: By subtask.
        partner: Of a drain, whose two snapshots have the same positions: the resumable one names the terminal
            one here, and the other way round.
        orphaned: It is not needed any more, but its manifest may be on its way to the storage.
        is_durable: Its manifest is stored.
    """

    checkpoint_id: CheckpointId
    request: SnapshotRequest
    partner: PendingCheckpoint | None = field(default=None, repr=False)
    orphaned: bool = False
    is_durable: bool = False
    phase: CheckpointPhase = CheckpointPhase.PREPARING
    directory: str | None = None
    timestamp_ms: int = 0
    participants: frozenset[AttemptId] = frozenset()
    restored_finished: frozenset[SubtaskId] = frozenset()
    finished: tuple[SubtaskId, ...] = ()
    assigners: dict[VertexId, bytes] = field(default_factory=dict)
    triggers: set[int] = field(default_factory=set)
    triggered: set[SubtaskId] = field(default_factory=set)
    acks: dict[SubtaskId, CheckpointAcked] = field(default_factory=dict)
    manifest_tries: int = 1
    _written: Manifest | None = None
    _read: tuple[SourcePositions, ...] = ()

    @property
    def kind(self) -> SnapshotKind:
        return self.request.kind

    @property
    def resumable_from(self) -> str:
        """Directory from which a job can go on behind it; of a drain's terminal savepoint that of the other
        one."""
        is_terminal = self.partner is not None and self.kind.is_synchronous
        return (self.partner.directory if is_terminal and self.partner else self.directory) or ""

    def begin(self, plan: CheckpointPlan, assigners: dict[VertexId, bytes], executions: Executions) -> None:
        """Fixes which tasks take part; the triggers follow."""
        tasks = [executions[subtask] for subtask in plan.to_wait_for]
        self.phase = CheckpointPhase.TRIGGERED
        self.participants = frozenset(execution.attempt for execution in tasks)
        self.restored_finished = frozenset(
            execution.attempt.subtask for execution in tasks if execution.restored_finished
        )
        self.finished = plan.finished
        self.assigners = assigners
        self.triggered = set(plan.to_trigger)

    def leave(self, attempt: AttemptId, plan: CheckpointPlan) -> tuple[SubtaskId, ...]:
        """A participant ended in order before it took the snapshot; all that it had to commit is committed,
        and its consumers take the end of its output for its barrier.

        Args:
            attempt: The one that leaves.
            plan: As it is without it.

        Returns:
            Tasks that must be triggered now, since they have no running producer left.
        """
        self.participants -= {attempt}
        self.finished = (*self.finished, attempt.subtask)
        late = tuple(s for s in plan.to_trigger if s not in self.triggered and s not in self.acks)
        self.triggered.update(late)
        return late

    def waits_for(self, attempt: AttemptId) -> bool:
        """It takes part and has not acknowledged yet."""
        return attempt in self.participants and attempt.subtask not in self.acks

    def awaits(self, attempt: AttemptId) -> bool:
        """Its tasks were triggered, and it waits for that one."""
        return self.phase is CheckpointPhase.TRIGGERED and self.waits_for(attempt)

    @property
    def timeout(self) -> Timer:
        """The timer that ends it if it takes too long."""
        return Timer(TimerKind.CHECKPOINT_TIMEOUT, self.checkpoint_id)

    @property
    def is_fully_acked(self) -> bool:
        return len(self.acks) == len(self.participants)

    @property
    def is_starting(self) -> bool:
        """It has not reached all tasks that it must start from; only one snapshot does so at a time."""
        return self.phase in (CheckpointPhase.PREPARING, CheckpointPhase.DELIVERING) or bool(self.triggers)

    @property
    def is_resumable_half(self) -> bool:
        """It is the savepoint that a drain takes before the end of data."""
        return self.partner is not None and self.kind is SnapshotKind.SAVEPOINT

    @property
    def requested(self) -> PendingCheckpoint:
        """The snapshot that was requested: of a drain the terminal one, which both belong to."""
        return self.partner if self.partner is not None and self.is_resumable_half else self

    @property
    def stands_behind(self) -> bool:
        """Tasks stand still behind its barrier, or will: it belongs to a stop."""
        return self.kind.is_synchronous or self.is_resumable_half

    def waiting_text(self, executions: Executions) -> str:
        """Tasks that have not acknowledged, for people."""
        if not self.participants:
            return f"still {self.phase.value}"
        late = [execution.title for execution in executions if self.waits_for(execution.attempt)]
        more = f" and {len(late) - LATE_SHOWN_MAX} more" if len(late) > LATE_SHOWN_MAX else ""
        return f"waiting for {', '.join(late[:LATE_SHOWN_MAX])}{more}"

    def manifest(
        self, settings: JobSettings, graph: JobGraph, resolved: Callable[[Manifest], Manifest]
    ) -> Manifest:
        """What the snapshot holds, when all have acknowledged.

        Raises:
            PartialFinishingNotSupported: see `vertex_snapshot`.
            SharedFileGone: see `CompletedSnapshots.resolved`.
        """
        assert self.is_fully_acked, "a manifest before every acknowledgement"
        acked = {subtask: ack.snapshot for subtask, ack in self.acks.items()}
        ended = {*self.finished, *self.restored_finished}
        partner = self.partner
        in_flight = {edge for task in acked.values() if task.in_flight for edge in task.in_flight.edges}
        vertices = tuple(
            vertex_snapshot(vertex, acked=acked, ended=ended, coordinator=self.assigners.get(vertex.id))
            for vertex in graph.vertices
        )
        manifest = Manifest(
            job=settings.job,
            job_name=graph.name,
            lineage=settings.lineage,
            checkpoint_id=self.checkpoint_id,
            kind=self.kind,
            timestamp_ms=self.timestamp_ms,
            resumes_after=partner.checkpoint_id if partner and self.is_resumable_half else None,
            resumable=_name(partner.directory) if partner and self.kind.is_synchronous else None,
            savepoint_format=self.request.format,
            in_flight_keys={edge.id: edge.key_columns for edge in graph.edges if edge.id in in_flight},
            positions=recorded_positions(graph, vertices),
            vertices=vertices,
        )
        self._written = resolved(manifest)
        self._read = read_positions(graph, vertices)
        return self._written

    @property
    def read(self) -> tuple[SourcePositions, ...]:
        """See `CheckpointFigures.read`."""
        return self._read

    @property
    def written(self) -> Manifest:
        """The manifest that was given to the storage."""
        assert self._written is not None, "no manifest yet"
        return self._written


def _name(directory: str | None) -> str:
    """Last part of a directory's URL."""
    return (directory or "").rstrip("/").rpartition("/")[2]

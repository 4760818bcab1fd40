"""Statistics of a job's snapshots: pure bookkeeping for the coordinator.

The newest records are kept, as many as `web.checkpoints.history` says. Of older ones only counts, bounds and
the figures of the last `SAMPLES_MAX` completed ones (for the quantiles) are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

from unistream.base.ids import CheckpointId, SubtaskId, VertexId
from unistream.core.checkpoint.pending import PendingCheckpoint
from unistream.model.checkpoint_figures import (
    CheckpointFigures,
    CheckpointsInfo,
    RestoredFigures,
    SnapshotStatus,
    Spread,
    SubtaskFigures,
    VertexFigures,
)
from unistream.model.messages import CheckpointAcked
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.stored_job import NO_TOTALS, TotalsSoFar

SAMPLES_MAX: Final = 1_000
_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
_SPREAD: Final = ("duration_ms", "state_bytes", "new_bytes", "processed_bytes", "persisted_bytes")

_Started = tuple[CheckpointFigures, int]  # with its start on the machine's clock


class CheckpointHistory:
    """Records of the snapshots of one job. Times are in ms on the machine's clock unless stated otherwise.

    Args:
        kept_max: The number of records kept. The latest completed and failed checkpoint and the latest
            savepoint are always kept.
        before: Counts under earlier leaders.
    """

    def __init__(self, kept_max: int, before: TotalsSoFar = NO_TOTALS) -> None:
        self._kept_max = kept_max
        self._open: dict[CheckpointId, tuple[int, dict[SubtaskId, SubtaskFigures]]] = {}
        self._ended: deque[_Started] = deque(maxlen=kept_max)
        self._samples = {name: Sample() for name in _SPREAD}
        self.count_completed = before.completed
        self.count_failed = before.failed
        self.count_restored = before.restored
        self._latest: dict[str, _Started] = {}
        self._restored: RestoredFigures | None = None  # `restored_ms` is on the machine's clock

    def opened(self, pending: PendingCheckpoint, now_ms: int) -> None:
        """It has started."""
        self._open[pending.checkpoint_id] = (now_ms, {})

    def acked(self, pending: PendingCheckpoint, ack: CheckpointAcked, now_ms: int) -> None:
        """One of its tasks has acknowledged."""
        started_ms, subtasks = self._open[pending.checkpoint_id]
        subtasks[ack.attempt.subtask] = SubtaskFigures(
            index=ack.attempt.index,
            acked_after_ms=now_ms - started_ms,
            start_delay_ms=ack.start_delay_ms,
            alignment_ms=ack.alignment_ms,
            sync_ms=ack.sync_ms,
            async_ms=ack.async_ms,
            processed_bytes=ack.processed_bytes,
            persisted_bytes=ack.persisted_bytes,
            state_bytes=ack.state_bytes,
            new_bytes=ack.new_bytes,
            unaligned=ack.unaligned,
        )

    def completed(self, pending: PendingCheckpoint, now_ms: int) -> CheckpointFigures:
        """It is durable."""
        kind = "savepoint" if pending.kind.is_savepoint else "completed"
        record = self._close(kind, pending, SnapshotStatus.COMPLETED, None, now_ms)
        self.count_completed += 1
        for name, sample in self._samples.items():
            sample.add(getattr(record, name))
        return record

    def failed(self, pending: PendingCheckpoint, reason: str, now_ms: int) -> CheckpointFigures:
        """It was aborted or could not be stored."""
        self.count_failed += 1
        return self._close("failed", pending, SnapshotStatus.FAILED, reason, now_ms)

    def discarded(self, directory: str) -> None:
        """The completed snapshot in `directory` was replaced by newer ones."""

        def marked(ended: _Started) -> _Started:
            record, started_ms = ended
            if record.path != directory or record.status is not SnapshotStatus.COMPLETED:
                return ended
            return msgspec.structs.replace(record, discarded=True), started_ms

        self._ended = deque(map(marked, self._ended), maxlen=self._kept_max)
        self._latest = {kind: marked(ended) for kind, ended in self._latest.items()}

    def restored(self, checkpoint_id: CheckpointId, kind: SnapshotKind, path: str, now_ms: int) -> None:
        """Tasks were restored from this snapshot."""
        self.count_restored += 1
        self._restored = RestoredFigures(
            checkpoint_id=checkpoint_id, kind=kind, path=path, restored_ms=now_ms
        )

    def _close(
        self, kind: str, pending: PendingCheckpoint, status: SnapshotStatus, reason: str | None, now_ms: int
    ) -> CheckpointFigures:
        record = self._record(pending, status, reason, now_ms)
        started_ms, _ = self._open.pop(pending.checkpoint_id)
        self._latest[kind] = record, started_ms
        self._ended.append((record, started_ms))
        return record

    def in_progress(self, pending: PendingCheckpoint, now_ms: int) -> CheckpointFigures:
        return self._record(pending, SnapshotStatus.IN_PROGRESS, None, now_ms)

    def _record(
        self, pending: PendingCheckpoint, status: SnapshotStatus, reason: str | None, now_ms: int
    ) -> CheckpointFigures:
        started_ms, subtasks = self._open[pending.checkpoint_id]
        return CheckpointFigures(
            checkpoint_id=pending.checkpoint_id,
            kind=pending.kind,
            format=pending.request.format,
            status=status,
            timestamp_ms=pending.timestamp_ms,
            duration_ms=now_ms - started_ms,
            path=pending.directory,
            reason=reason,
            vertices=_by_vertex(pending, subtasks),
            read=pending.read if status is SnapshotStatus.COMPLETED else (),
        )

    def info(
        self, pending: Iterable[PendingCheckpoint], names: dict[VertexId, str], now_ms: int, wall_ms: int
    ) -> CheckpointsInfo:
        """The statistics now.

        Args:
            pending: Snapshots in progress.
            names: Names of the vertices, in the order of the graph.
            now_ms: The machine's clock.
            wall_ms: The wall clock at the same time.
        """
        offset_ms = wall_ms - now_ms
        running = [(self.in_progress(one, now_ms), self._open[one.checkpoint_id][0]) for one in pending]
        known = [_shown(*one, names, offset_ms) for one in (*running, *self._ended)]
        newest = sorted(known, key=lambda record: record.checkpoint_id, reverse=True)
        latest = {kind: _shown(*ended, names, offset_ms) for kind, ended in self._latest.items()}
        restored = self._restored
        if restored is not None:
            restored = msgspec.structs.replace(restored, restored_ms=restored.restored_ms + offset_ms)
        return CheckpointsInfo(
            completed=self.count_completed,
            failed=self.count_failed,
            in_progress=len(running),
            restored=self.count_restored,
            latest=tuple(newest[: self._kept_max]),
            latest_completed=latest.get("completed"),
            latest_savepoint=latest.get("savepoint"),
            latest_failed=latest.get("failed"),
            latest_restored=restored,
            summary={name: sample.spread() for name, sample in self._samples.items() if sample.count},
        )


def _by_vertex(
    pending: PendingCheckpoint, subtasks: dict[SubtaskId, SubtaskFigures]
) -> tuple[VertexFigures, ...]:
    """The participants, in order."""
    participants: dict[VertexId, list[SubtaskId]] = {}
    for subtask in sorted(attempt.subtask for attempt in pending.participants):
        participants.setdefault(subtask.vertex, []).append(subtask)
    return tuple(
        VertexFigures(
            vertex=vertex,
            name=vertex,
            subtasks=tuple(subtasks[s] for s in of_vertex if s in subtasks),
            missing=tuple(s.index for s in of_vertex if s not in subtasks),
        )
        for vertex, of_vertex in participants.items()
    )


def _shown(
    record: CheckpointFigures, started_ms: int, names: dict[VertexId, str], offset_ms: int
) -> CheckpointFigures:
    """The record with the names of the vertices, in the order of the graph, and with its start even if it
    failed before its directory had a name; without what sources had read, which commits show."""
    places = {vertex: place for place, vertex in enumerate(names)}
    vertices = tuple(
        msgspec.structs.replace(vertex, name=names.get(vertex.vertex, vertex.name))
        for vertex in sorted(record.vertices, key=lambda v: places.get(v.vertex, len(places)))
    )
    timestamp_ms = record.timestamp_ms or started_ms + offset_ms
    return msgspec.structs.replace(record, vertices=vertices, timestamp_ms=timestamp_ms, read=())


class Sample:
    """One figure over many snapshots. Bounds and average cover all, quantiles the last `SAMPLES_MAX`."""

    def __init__(self, values: Iterable[int] = ()) -> None:
        self.count = 0
        self._total = self._min = self._max = 0
        self._last: deque[int] = deque(maxlen=SAMPLES_MAX)
        for value in values:
            self.add(value)

    def add(self, value: int) -> None:
        self._min = min(self._min, value) if self.count else value
        self._max = max(self._max, value) if self.count else value
        self._total += value
        self.count += 1
        self._last.append(value)

    def spread(self) -> Spread:
        assert self.count, "a spread of nothing"
        ordered = sorted(self._last)
        return Spread(
            min=self._min,
            max=self._max,
            average=self._total / self.count,
            **{name: _quantile(ordered, part) for name, part in _QUANTILES.items()},
        )


def _quantile(ordered: list[int], part: float) -> float:
    """Interpolated between the two nearest values.

    >>> _quantile([1, 2, 3, 4], 0.5)
    2.5
    """
    place = part * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

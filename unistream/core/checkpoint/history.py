"""Figures of a job's snapshots: pure bookkeeping next to the coordinator.

The newest are kept whole, as many as `web.checkpoints.history` says; of the others only numbers: counts,
bounds, and for the quantiles the figures of the last `SAMPLES_MAX` completed ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from unistream.base.ids import CheckpointId, SubtaskId, VertexId
from unistream.core.checkpoint.pending import Pending
from unistream.model.checkpoint_figures import (
    CheckpointFigures,
    CheckpointsInfo,
    RestoredFigures,
    SnapshotStatus,
    Spread,
    SubtaskFigures,
    VertexFigures,
)
from unistream.model.elements import SnapshotKind
from unistream.model.messages import CheckpointAcked

SAMPLES_MAX: Final = 1_000
_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
_SPREAD: Final = ("duration_ms", "state_bytes", "new_bytes", "processed_bytes", "persisted_bytes")


@dataclass(slots=True)
class _Ended:
    """A snapshot that has ended. `started_ms`: of the machine's clock."""

    figures: CheckpointFigures
    started_ms: int


class CheckpointHistory:
    """The outcomes of one job's snapshots. Times are of the machine's clock, in ms, unless said.

    Args:
        kept_max: Those that are kept whole. The latest completed and the latest failed one, and the latest
            savepoint, are so in any case.
    """

    def __init__(self, kept_max: int) -> None:
        self._kept_max = kept_max
        self._open: dict[CheckpointId, tuple[int, dict[SubtaskId, SubtaskFigures]]] = {}
        self._ended: deque[_Ended] = deque(maxlen=kept_max)
        self._samples = {name: Sample() for name in _SPREAD}
        self.count_completed = 0
        self.count_failed = 0
        self.count_restored = 0
        self._latest: dict[str, _Ended] = {}
        self._restored: RestoredFigures | None = None  # its time is of the machine's clock

    def opened(self, pending: Pending, now_ms: int) -> None:
        """It has begun."""
        self._open[pending.checkpoint_id] = (now_ms, {})

    def acked(self, pending: Pending, ack: CheckpointAcked, now_ms: int) -> None:
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

    def completed(self, pending: Pending, now_ms: int) -> None:
        """It is durable."""
        ended = self._close(pending, SnapshotStatus.COMPLETED, None, now_ms)
        self.count_completed += 1
        self._latest["completed" if pending.kind is SnapshotKind.CHECKPOINT else "savepoint"] = ended
        for name, sample in self._samples.items():
            sample.add(getattr(ended.figures, name))

    def failed(self, pending: Pending, reason: str, now_ms: int) -> None:
        """It was given up, or could not be had."""
        self.count_failed += 1
        self._latest["failed"] = self._close(pending, SnapshotStatus.FAILED, reason, now_ms)

    def discarded(self, directory: str) -> None:
        """The completed snapshot there has made way for newer ones."""
        for ended in (*self._ended, *self._latest.values()):
            if ended.figures.path == directory and ended.figures.status is SnapshotStatus.COMPLETED:
                ended.figures = msgspec.structs.replace(ended.figures, discarded=True)

    def restored(self, checkpoint_id: CheckpointId, kind: SnapshotKind, path: str, now_ms: int) -> None:
        """Tasks start again from that one."""
        self.count_restored += 1
        self._restored = RestoredFigures(
            checkpoint_id=checkpoint_id, kind=kind, path=path, restored_ms=now_ms
        )

    def _close(self, pending: Pending, status: SnapshotStatus, reason: str | None, now_ms: int) -> _Ended:
        ended = self._picture(pending, status, reason, now_ms)
        del self._open[pending.checkpoint_id]
        self._ended.append(ended)
        return ended

    def _picture(self, pending: Pending, status: SnapshotStatus, reason: str | None, now_ms: int) -> _Ended:
        started_ms, subtasks = self._open[pending.checkpoint_id]
        figures = CheckpointFigures(
            checkpoint_id=pending.checkpoint_id,
            kind=pending.kind,
            format=pending.request.format,
            status=status,
            timestamp_ms=pending.timestamp_ms,
            duration_ms=now_ms - started_ms,
            path=pending.directory,
            reason=reason,
            vertices=_by_vertex(pending, subtasks),
        )
        return _Ended(figures, started_ms)

    def info(
        self, pending: Iterable[Pending], names: dict[VertexId, str], now_ms: int, wall_ms: int
    ) -> CheckpointsInfo:
        """A picture, with those that are under way.

        Args:
            pending: Those.
            names: Of the vertices, for people, in their order.
            now_ms: Of the machine's clock.
            wall_ms: Of the wall clock at the same time.
        """
        offset_ms = wall_ms - now_ms
        running = [self._picture(one, SnapshotStatus.IN_PROGRESS, None, now_ms) for one in pending]
        known = [_shown(one, names, offset_ms) for one in (*running, *self._ended)]
        newest = sorted(known, key=lambda figures: figures.checkpoint_id, reverse=True)
        latest = {kind: _shown(ended, names, offset_ms) for kind, ended in self._latest.items()}
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


def _by_vertex(pending: Pending, subtasks: dict[SubtaskId, SubtaskFigures]) -> tuple[VertexFigures, ...]:
    """Those that take part, in order."""
    expected: dict[VertexId, list[SubtaskId]] = {}
    for subtask in sorted(attempt.subtask for attempt in pending.participants):
        expected.setdefault(subtask.vertex, []).append(subtask)
    return tuple(
        VertexFigures(
            vertex=vertex,
            name=vertex,
            subtasks=tuple(subtasks[s] for s in of_vertex if s in subtasks),
            missing=tuple(s.index for s in of_vertex if s not in subtasks),
        )
        for vertex, of_vertex in expected.items()
    )


def _shown(ended: _Ended, names: dict[VertexId, str], offset_ms: int) -> CheckpointFigures:
    """For people: vertices by name, in the order of the graph, and when it began also if its directory never
    had a name."""
    figures = ended.figures
    places = {vertex: place for place, vertex in enumerate(names)}
    vertices = tuple(
        msgspec.structs.replace(vertex, name=names.get(vertex.vertex, vertex.name))
        for vertex in sorted(figures.vertices, key=lambda v: places.get(v.vertex, len(places)))
    )
    began_ms = figures.timestamp_ms or ended.started_ms + offset_ms
    return msgspec.structs.replace(figures, vertices=vertices, timestamp_ms=began_ms)


class Sample:
    """One figure of many snapshots. Bounds and average are of all, quantiles of the last `SAMPLES_MAX`."""

    def __init__(self, values: Iterable[int] = ()) -> None:
        self.count = 0
        self._total = self._min = self._max = 0
        self._last: deque[int] = deque(maxlen=SAMPLES_MAX)
        for value in values:
            self.add(value)

    def add(self, value: int) -> None:
        """Of one more snapshot."""
        self._min = min(self._min, value) if self.count else value
        self._max = max(self._max, value) if self.count else value
        self._total += value
        self.count += 1
        self._last.append(value)

    def spread(self) -> Spread:
        """Of at least one value."""
        assert self.count, "a spread of nothing"
        ordered = sorted(self._last)
        return Spread(
            min=self._min,
            max=self._max,
            average=self._total / self.count,
            **{name: _quantile(ordered, part) for name, part in _QUANTILES.items()},
        )


def _quantile(ordered: list[int], part: float) -> float:
    """Between the two nearest values, by distance.

    >>> _quantile([1, 2, 3, 4], 0.5)
    2.5
    """
    place = part * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

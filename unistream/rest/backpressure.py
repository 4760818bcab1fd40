"""How much of its time each subtask of a vertex waits for room in its output: Flink's picture of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from unistream.base.ids import VertexId
from unistream.model.job_info import JobInfo, SubtaskInfo

Json = dict[str, object]

LOW_ABOVE: Final = 0.10  # a tenth of its time is called ok, as in Flink
HIGH_ABOVE: Final = 0.50
UNKNOWN: Final[Json] = {"status": "deprecated"}
"""Flink's answer for a vertex that has nothing to show."""

_PER_SECOND_MS: Final = 1_000


def level(ratio: float) -> str:
    """Flink's word for it.

    >>> [level(ratio) for ratio in (0.0, 0.1, 0.11, 0.5, 0.51, 1.0)]
    ['ok', 'ok', 'low', 'low', 'high', 'high']
    """
    if ratio > HIGH_ABOVE:
        return "high"
    return "low" if ratio > LOW_ABOVE else "ok"


def backpressure(info: JobInfo, vertex: VertexId, now_ms: int) -> Json:
    """/jobs/{id}/vertices/{vertex}/backpressure; ratios are of the last second or so, the vertex is as bad as
    its worst subtask."""
    subtasks = [subtask for subtask in info.subtasks if subtask.vertex == vertex]
    if not subtasks:
        return UNKNOWN
    return {
        "status": "ok",
        **_levels(_worst(subtasks)),
        "end-timestamp": now_ms,
        "subtasks": [_subtask(subtask) for subtask in subtasks],
    }


def _worst(subtasks: Sequence[SubtaskInfo]) -> float:
    return max(_ratio(subtask.metrics.backpressured_per_s) for subtask in subtasks)


def _subtask(subtask: SubtaskInfo) -> Json:
    ratio = _ratio(subtask.metrics.backpressured_per_s)
    return {
        "subtask": subtask.index,
        "attempt-number": subtask.attempt,
        **_levels(ratio),
        "ratio": ratio,
        "idleRatio": _ratio(subtask.metrics.idle_per_s),
        "busyRatio": _ratio(subtask.metrics.busy_per_s),
    }


def _levels(ratio: float) -> Json:
    """The level in both spellings: the dashboard reads either."""
    return {"backpressureLevel": level(ratio), "backpressure-level": level(ratio)}


def _ratio(ms_per_s: int) -> float:
    return min(1.0, max(0.0, ms_per_s / _PER_SECOND_MS))

"""What the tasks of one job have counted: each current attempt by its newest report, former ones in sum."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from unistream.base.ids import AttemptId, JobId, SubtaskId, VertexId
from unistream.master.job.row_counts import (
    RowCounts,
    dead_letters,
    late_rows,
    out_of_order_rows,
    skipped_rows,
)
from unistream.model.graph import JobGraph
from unistream.model.job_info import SinkInfo, SubtaskInfo
from unistream.model.messages import TaskMetrics
from unistream.model.metric_names import (
    PENDING_BYTES,
    PENDING_BYTES_UNKNOWN,
    PENDING_RECORDS,
    PENDING_UNKNOWN,
)
from unistream.model.splits import Unread

NOTHING_UNREAD: Final[Mapping[VertexId, Unread]] = MappingProxyType({})


class _Known(NamedTuple):
    """The newest counters of a subtask. `final`: its attempt has ended."""

    attempt: int
    final: bool
    metrics: TaskMetrics


class JobCounters:
    """Not thread-safe."""

    def __init__(self, job: JobId) -> None:
        self._known: dict[SubtaskId, _Known] = {}
        self._late = late_rows(job)
        self._out_of_order = out_of_order_rows(job)
        self._dead_letters = dead_letters(job)
        self._skipped = skipped_rows(job)

    def report(self, attempt: AttemptId, metrics: TaskMetrics, *, final: bool) -> bool:
        """Keeps those of the newest attempt of each subtask. After `final` metrics a late heartbeat is
        ignored: False."""
        known = self._known.get(attempt.subtask)
        if known is not None and (known.attempt, known.final) > (attempt.attempt, final):
            return False
        if known is not None and known.attempt != attempt.attempt:
            self._ended(known)
        for counts in self._counts:
            counts.reported(metrics.user)
        self._known[attempt.subtask] = _Known(attempt.attempt, final, metrics)
        return True

    def rescaled(self, graph: JobGraph) -> None:
        """Metrics of subtasks that `graph` does not have are dropped."""
        widths = {vertex.id: vertex.parallelism for vertex in graph.vertices}
        for subtask in [s for s in self._known if s.index >= widths.get(s.vertex, 0)]:
            self._ended(self._known.pop(subtask))

    def _ended(self, known: _Known) -> None:
        for counts in self._counts:
            counts.over(known.metrics.user)

    def of(self, subtask: SubtaskInfo) -> TaskMetrics:
        """What this attempt has counted; zeros: it has not reported yet."""
        known = self._known.get(SubtaskId(subtask.vertex, subtask.index))
        return TaskMetrics() if known is None or known.attempt != subtask.attempt else known.metrics

    @property
    def _counts(self) -> tuple[RowCounts, ...]:
        return self._late, self._out_of_order, self._dead_letters, self._skipped

    def _total(self, counts: RowCounts) -> dict[str, int]:
        return counts.total(known.metrics.user for known in self._known.values())

    @property
    def late_rows(self) -> dict[str, int]:
        """See `JobInfo.late_rows`."""
        return self._total(self._late)

    @property
    def out_of_order_rows(self) -> dict[str, int]:
        """See `JobInfo.out_of_order_rows`."""
        return self._total(self._out_of_order)

    @property
    def dead_letters(self) -> dict[str, int]:
        """See `JobInfo.dead_letters`."""
        return self._total(self._dead_letters)

    @property
    def skipped_rows(self) -> dict[str, int]:
        """See `JobInfo.skipped_rows`."""
        return self._total(self._skipped)


def summed(
    subtasks: tuple[SubtaskInfo, ...],
    sinks: dict[str, SinkInfo],
    unread: Mapping[VertexId, Unread] = NOTHING_UNREAD,
) -> dict[str, int]:
    """Counters of a whole job, see `JobInfo.metrics`. `unread`: of sources, by no reader."""
    totals: dict[str, int] = {}
    for subtask in subtasks:
        m = subtask.metrics
        counters = {
            "records_in": m.records_in,
            "records_out": m.records_out,
            "busy_ms": m.busy_ms,
            "backpressured_ms": m.backpressured_ms,
            "idle_ms": m.idle_ms,
            **m.user,
        }
        for name, value in counters.items():
            totals[name] = totals.get(name, 0) + value
    for source, more in {one.source: unread.get(one.vertex) for one in subtasks if one.source}.items():
        if more is not None:
            _add_unread(totals, f"{source}.{PENDING_RECORDS}", f"{source}.{PENDING_UNKNOWN}", more.rows)
            _add_unread(totals, f"{source}.{PENDING_BYTES}", f"{source}.{PENDING_BYTES_UNKNOWN}", more.size)
    watermarks = [s.metrics.watermark for s in subtasks if s.metrics.watermark is not None]
    if watermarks:
        totals["watermark"] = min(watermarks)
    if sinks:
        totals["rows_committed"] = sum(sink.rows for sink in sinks.values())
    return totals


def _add_unread(totals: dict[str, int], pending: str, unknown: str, more: int | None) -> None:
    """Adds what no reader has taken up to what the readers of a source count as unread, if they do; `more`
    None: that is unknown."""
    if unknown in totals and more is None:
        totals[unknown] += 1
    elif unknown in totals and more:
        totals[pending] = totals.get(pending, 0) + more

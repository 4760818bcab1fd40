"""How a job does, by figures: pure functions of its `JobInfo`, for the REST API and the command line alike.

Counters grow; who asks twice has rates, and workers say theirs. What nobody knows is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from unistream.base.ids import OperatorUid, VertexId
from unistream.model.counter_names import by_operator
from unistream.model.job_info import CheckpointInfo, JobInfo, SubtaskInfo, VertexInfo, in_one_line
from unistream.model.messages import TaskMetrics
from unistream.model.metric_names import ROWS_SENT, SECONDS_UNANSWERED

_RUNS: Final = "RUNNING"


class VertexName(msgspec.Struct, frozen=True, kw_only=True):
    """A vertex, for those who look for an operator by its name."""

    id: VertexId
    name: str


class SilentSource(msgspec.Struct, frozen=True, kw_only=True):
    """A source that waits for a system which does not answer.

    `seconds`: for how long, of the subtask that has waited longest. `subtasks`: that wait, of `of`.
    """

    name: str
    seconds: int
    subtasks: int
    of: int


class JobFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How a running job does.

    Attributes:
        rows_read: By its sources, in the current attempts of their tasks; null: some have not reported.
        rows_committed: By all of its sinks; null: none of them counts rows.
        behind: Records that the sources know of and have not read; null: not all of them say so.
        watermark_ms: The smallest one; null: there is none yet.
        compiling: A worker makes machine code, and may read nothing meanwhile.
        busiest: Part of its time that the busiest subtask works, 0 to 1; `most_held_back`: that the one waits
            which waits most for room in its output.
        checkpoint: The newest that is complete.
        failed_since: Checkpoints that have failed since then.
        writes: Tables, topics and folders that it writes, as URIs.
        reads: The same that it reads.
        failure: Why it failed last, in one line.
        silent: Sources that wait for a system which does not answer; not all kinds of sources say so.
        vertices: Those that run, in the order of the graph; a name has those of the chained operators.
    """

    rows_read: int | None
    rows_committed: int | None
    behind: int | None
    watermark_ms: int | None
    compiling: bool
    busiest: float
    most_held_back: float
    checkpoint: CheckpointInfo | None
    failed_since: int
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    failure: str | None
    vertices: tuple[VertexName, ...]
    silent: tuple[SilentSource, ...] = ()


class JobVertexFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How one vertex of a running job does, over its subtasks.

    Attributes:
        states: Subtasks by state.
        rows_in: By the current attempts; None: they are committables, no rows, or nobody knows.
        rows_out: The same; of a writer the rows that it has given to its sink.
        in_per_s: None: not all subtasks that run have said it.
        busy: Part of its time that the busiest subtask works, 0 to 1; `held_back`: that the one waits which
            waits most for room in its output. None: none runs.
        watermark_ms: The smallest one; None: a subtask has none yet.
    """

    id: VertexId
    name: str
    states: dict[str, int]
    rows_in: int | None = None
    rows_out: int | None = None
    in_per_s: int | None = None
    busy: float | None = None
    held_back: float | None = None
    watermark_ms: int | None = None

    @property
    def subtasks(self) -> int:
        return sum(self.states.values())


def rows_read(info: JobInfo) -> int | None:
    """How many rows the sources have read, in the current attempts of their tasks; None: nobody knows, or not
    yet."""
    sources = _of_sources(info)
    if not sources or info.incomplete or any(map(_has_not_reported, sources)):
        return None
    return sum(one.metrics.records_in for one in sources)


def read_per_s(info: JobInfo) -> int | None:
    """Rows that its sources read in a second; None: not all of them have said it, or none runs."""
    return _per_s(_of_sources(info))


def rows_written(info: JobInfo) -> int | None:
    """Rows that its writers have given to their sinks, in the current attempts of their tasks, visible or
    not; None: no sink counts them."""
    counts = by_operator(info.metrics, ROWS_SENT)
    return sum(counts.values()) if counts else None


def is_bounded(info: JobInfo) -> bool | None:
    """All its sources end; None: nobody knows."""
    known = [vertex.bounded for vertex in info.vertices if vertex.bounded is not None]
    return all(known) if known else None


def rows_left(info: JobInfo) -> int | None:
    """How many rows of bounded input are not read yet; None: the input does not end, or not all sources say
    it."""
    return info.records_behind if is_bounded(info) and not info.is_terminal else None


def bytes_left(info: JobInfo) -> int | None:
    """How many bytes of bounded input are not read yet, where not all sources know their rows; None
    otherwise."""
    is_theirs = is_bounded(info) and not info.is_terminal and rows_left(info) is None
    return info.bytes_behind if is_theirs else None


def vertex_figures(info: JobInfo) -> list[JobVertexFigures]:
    """The figures of each vertex, in the order of the graph."""
    by_vertex: dict[VertexId, list[SubtaskInfo]] = {}
    for subtask in info.subtasks:
        by_vertex.setdefault(subtask.vertex, []).append(subtask)
    known = {vertex.id: vertex for vertex in info.vertices}
    return [
        _of_vertex(
            known.get(id_) or VertexInfo(id=id_, name=found[0].vertex_name),
            found,
            counts=not info.incomplete,
        )
        for id_, found in by_vertex.items()
    ]


def _of_vertex(vertex: VertexInfo, found: Sequence[SubtaskInfo], *, counts: bool) -> JobVertexFigures:
    states: dict[str, int] = {}
    for one in found:
        states[one.state] = states.get(one.state, 0) + 1
    running = [one.metrics for one in found if one.state == _RUNS]  # others keep their last figures
    watermarks = [one.metrics.watermark for one in found if one.metrics.watermark is not None]
    rows_in = sum(one.metrics.records_in for one in found) if vertex.takes_rows else None
    rows_out: int | None = sum(one.metrics.records_out for one in found)
    if not vertex.gives_rows:
        sent = [count for one in found for count in by_operator(one.metrics.user, ROWS_SENT).values()]
        rows_out = sum(sent) if sent else None
    return JobVertexFigures(
        id=vertex.id,
        name=vertex.name,
        states=states,
        rows_in=rows_in if counts else None,
        rows_out=rows_out if counts else None,
        in_per_s=_per_s(found) if vertex.takes_rows else None,
        busy=max((_part(one.busy_per_s) for one in running), default=None),
        held_back=max((_part(one.backpressured_per_s) for one in running), default=None),
        watermark_ms=min(watermarks) if running and len(watermarks) == len(found) else None,
    )


def _of_sources(info: JobInfo) -> list[SubtaskInfo]:
    return [subtask for subtask in info.subtasks if subtask.source is not None]


def _has_not_reported(subtask: SubtaskInfo) -> bool:
    """A worker reports with its heartbeats, the first time some seconds after its tasks have started."""
    return subtask.state == _RUNS and subtask.metrics == TaskMetrics()


def _per_s(subtasks: Iterable[SubtaskInfo]) -> int | None:
    rates = [one.metrics.records_in_per_s for one in subtasks if one.state == _RUNS]
    known = [one for one in rates if one is not None]
    return sum(known) if known and len(known) == len(rates) else None


def figures_of(info: JobInfo) -> JobFigures:
    """The figures of a job. Pure."""
    metrics = [subtask.metrics for subtask in info.subtasks]
    complete = next((one for one in info.checkpoints if one.state == "completed"), None)
    newer = info.checkpoints if complete is None else info.checkpoints[: info.checkpoints.index(complete)]
    last = max(info.exceptions, key=lambda one: one.at_ms, default=None)
    return JobFigures(
        rows_read=rows_read(info),
        rows_committed=info.metrics.get("rows_committed"),
        behind=info.records_behind,
        watermark_ms=info.metrics.get("watermark"),
        compiling=info.is_compiling,
        busiest=max((_part(one.busy_per_s) for one in metrics), default=0.0),
        most_held_back=max((_part(one.backpressured_per_s) for one in metrics), default=0.0),
        checkpoint=complete,
        failed_since=sum(one.state == "failed" for one in newer),
        writes=_uris(info.writes),
        reads=_uris(info.reads),
        failure=None if last is None else in_one_line(last.kind, last.message),
        vertices=tuple(
            VertexName(id=id_, name=name)
            for id_, name in {s.vertex: s.vertex_name for s in info.subtasks}.items()
        ),
        silent=silent_sources(info),
    )


def silent_sources(info: JobInfo) -> tuple[SilentSource, ...]:
    """The sources of a job that wait for answers. Pure."""
    seconds: dict[str, list[int]] = {}
    for subtask in info.subtasks:
        if subtask.source is not None and subtask.state == "RUNNING":
            counter = f"{subtask.source}.{SECONDS_UNANSWERED}"
            seconds.setdefault(subtask.source, []).append(subtask.metrics.user.get(counter, 0))
    return tuple(
        SilentSource(name=name, seconds=max(each), subtasks=sum(map(bool, each)), of=len(each))
        for name, each in seconds.items()
        if any(each)
    )


def _uris(by_operator: Mapping[OperatorUid, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(sorted({uri for uris in by_operator.values() for uri in uris}))


def _part(ms_per_s: int) -> float:
    return min(1.0, max(0.0, ms_per_s / 1_000))

"""The exception history of a job as `JobInfo` shows it."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Sequence
from typing import Final

from unistream.base.config import EXCEPTION_HISTORY_SIZE, Configuration
from unistream.base.ids import AttemptId, VertexId
from unistream.core.job import ExceptionEntry, PastAttempt, RootException, task_name
from unistream.model.graph import JobGraph
from unistream.model.job_info import ExceptionInfo, PastAttemptInfo
from unistream.model.messages import TaskFailure
from unistream.port.metadata import ExceptionRecord

_ATTEMPT: Final = re.compile(r"^(?P<job>[^/]+)/(?P<vertex>.+)#(?P<index>\d+)\.(?P<attempt>\d+)$")


def named_task(graph: JobGraph, attempt: AttemptId) -> str:
    """The name of the attempt's task, such as ``map (1/2) - execution #0``."""
    for vertex in graph.vertices:
        if vertex.id == attempt.vertex:
            return task_name(vertex.name, attempt.index, vertex.parallelism, attempt.attempt)
    return str(attempt)


def exception_info(root: RootException) -> ExceptionInfo:
    """A root cause with its concurrent exceptions."""
    return _info(root.cause, tuple(_info(entry) for entry in root.concurrent))


def _info(entry: ExceptionEntry, concurrent: tuple[ExceptionInfo, ...] = ()) -> ExceptionInfo:
    return ExceptionInfo(
        at_ms=entry.at_ms,
        kind=entry.failure.kind,
        message=entry.failure.message,
        traceback=entry.failure.traceback,
        attempt=None if entry.attempt is None else str(entry.attempt),
        task_manager=entry.task_manager,
        task_name=entry.task_name,
        endpoint=entry.endpoint,
        concurrent=concurrent,
    )


def recorded_exceptions(
    records: Sequence[ExceptionRecord], graph: JobGraph | None
) -> tuple[ExceptionInfo, ...]:
    """The exceptions in the catalogue, newest first, as many as the job shows; without concurrent ones."""
    kept = Configuration(graph.config if graph is not None else {}).get(EXCEPTION_HISTORY_SIZE)
    newest = sorted(records, key=lambda record: record.at_ms, reverse=True)[:kept]
    return tuple(
        ExceptionInfo(
            at_ms=record.at_ms,
            kind=record.kind,
            message=record.message,
            traceback=record.traceback,
            attempt=record.attempt,
            task_manager=record.task_manager,
            task_name=record.task_name or _recorded_name(record.attempt, graph),
        )
        for record in newest
    )


def _recorded_name(attempt: str | None, graph: JobGraph | None) -> str | None:
    """`attempt` is the text of an `AttemptId`."""
    match = _ATTEMPT.match(attempt or "")
    if match is None or graph is None:
        return attempt
    index, number = int(match["index"]), int(match["attempt"])
    for vertex in graph.vertices:
        if vertex.id == VertexId(match["vertex"]):
            return task_name(vertex.name, index, vertex.parallelism, number)
    return attempt


def past_attempt_info(past: PastAttempt) -> PastAttemptInfo:
    failure = past.failure
    return PastAttemptInfo(
        attempt=past.attempt.attempt,
        state=past.state,
        ended_ms=past.ended_ms,
        task_manager=past.task_manager,
        failure=None if failure is None else f"{failure.kind}: {failure.message}",
    )


def defect_failure(error: Exception, story: Iterable[str]) -> TaskFailure:
    """The failure of a job whose machine has a bug. `story`: its last events."""
    lines = "\n  ".join(story)
    return TaskFailure(
        kind="InternalError",
        message=f"the job's machine failed: {type(error).__name__}: {error}; its last events:\n  {lines}",
        traceback=traceback.format_exc(),
        recoverable=False,
    )

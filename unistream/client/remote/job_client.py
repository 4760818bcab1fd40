"""One interface to control a job, wherever it runs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

import msgspec
from msgspec import structs

from unistream.base.errors import (
    ConfigError,
    Fenced,
    JobCancelled,
    OutcomeUnknown,
    SuppressRestarts,
    UnistreamError,
    UserCodeError,
)
from unistream.base.ids import JobId
from unistream.model.checkpoint_figures import CheckpointsInfo
from unistream.model.job_info import JobInfo, SinkInfo
from unistream.model.job_log_line import JobLogLine
from unistream.model.messages import TaskFailure
from unistream.model.snapshot_kind import FormatName, TypeName

if TYPE_CHECKING:
    from unistream.model.submission import SubmitRequest

OnProgress = Callable[[JobInfo], None]
"""Called with the current status of a job."""


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a job has ended.

    Attributes:
        state: FINISHED, CANCELED, FAILED, or SUSPENDED: its cluster was shut down, and `failure` says how to
            resume it.
        metrics: See `JobInfo.metrics`; `rows_committed` counts the rows visible in sinks.
        late_rows, out_of_order_rows, dead_letters, skipped_rows: See `JobInfo`.
        savepoint: Directory of the last savepoint, if any. After a drain it is the terminal one, which proves
            that everything is committed.
        resumable_savepoint: Directory of the last savepoint that a job can resume from.
    """

    job: JobId
    name: str
    state: str
    restarts: int = 0
    checkpoints: int = 0
    duration_ms: int = 0
    metrics: dict[str, int] = {}
    late_rows: dict[str, int] = {}
    out_of_order_rows: dict[str, int] = {}
    dead_letters: dict[str, int] = {}
    skipped_rows: dict[str, int] = {}
    sinks: dict[str, SinkInfo] = {}
    savepoint: str | None = None
    resumable_savepoint: str | None = None
    latest_checkpoint: str | None = None
    failure: TaskFailure | None = None

    @property
    def is_success(self) -> bool:
        return self.state == "FINISHED"


def result_of(info: JobInfo) -> JobResult:
    """The result of a job that has ended."""
    return JobResult(
        job=info.job,
        name=info.name,
        state=info.state,
        restarts=info.restarts,
        checkpoints=info.checkpoints_completed,
        duration_ms=(info.ended_ms or info.submitted_ms) - info.submitted_ms,
        metrics=info.metrics,
        late_rows=info.late_rows,
        out_of_order_rows=info.out_of_order_rows,
        dead_letters=info.dead_letters,
        skipped_rows=info.skipped_rows,
        sinks=info.sinks,
        savepoint=info.savepoint,
        resumable_savepoint=info.resumable_savepoint,
        latest_checkpoint=info.latest_checkpoint,
        failure=info.failure,
    )


def checked(result: JobResult) -> JobResult:
    """`result`, if the job has finished: the one place where a failed job becomes an exception.

    Raises:
        JobCancelled: it was cancelled.
        UserCodeError (SuppressRestarts), ConfigError, Fenced, OutcomeUnknown: that is why it failed.
        UnistreamError: it failed for another reason.
    """
    if result.is_success:
        return result
    failure = result.failure
    why = f": {failure.message}" if failure is not None else ""
    text = f"job {result.name!r} ({result.job}) ended as {result.state}{why}"
    if result.state == "CANCELED":
        raise JobCancelled(text)
    error = _KINDS.get(failure.kind if failure is not None else "", UnistreamError)(text)
    if failure is not None and failure.user_traceback:
        error.add_note(failure.user_traceback.rstrip())  # at the end, where a Python programmer looks for it
    raise error


_KINDS: Final[Mapping[str, type[UnistreamError]]] = {
    kind.__name__: kind for kind in (ConfigError, SuppressRestarts, UserCodeError, Fenced, OutcomeUnknown)
}
"""Errors that keep their class on the way from a worker to the client."""


def identified(request: SubmitRequest) -> SubmitRequest:
    """`request` with a new request id unless it has one: however often it is sent, it is one job."""
    return (
        request if request.request_id is not None else structs.replace(request, request_id=uuid.uuid4().hex)
    )


class JobClient(Protocol):
    """A submitted job. Usable from any thread.

    If an embedded cluster was started for this one job, closing the client ends the cluster and with it the
    job, if it still runs.
    """

    @property
    def job_id(self) -> JobId: ...

    @property
    def rest_url(self) -> str | None:
        """URL of the cluster's REST API; None: it has none."""

    def status(self) -> JobInfo:
        """State, tasks and metrics now."""

    def checkpoints(self) -> CheckpointsInfo:
        """Statistics of its snapshots, kept after its end. Durations in ms, sizes in bytes."""

    def log(self, after: int = 0) -> Sequence[JobLogLine]:
        """What its functions have logged, oldest first: the lines behind number `after`, of those that are
        kept (the newest thousand). See docs/guide/logs.md."""

    def wait(self, timeout_s: float | None = None) -> JobResult:
        """Waits for the end.

        Raises:
            TimeoutError: it still runs after `timeout_s`.
            Unreachable: its cluster does not answer for longer than `client.timeout`.
            OutcomeUnknown: its cluster was started again, and does not know it any more.
        """

    def result(self, timeout_s: float | None = None) -> JobResult:
        """Waits as `wait`, but a job that did not finish is an error.

        Raises:
            JobCancelled: it was cancelled.
            UnistreamError: it failed; see `checked`.
        """

    def cancel(self) -> None:
        """Cancels it, without a savepoint; returns at once.

        Raises:
            AlreadyEnded: it has finished or failed.
        """

    def checkpoint(self, *, type: TypeName = "configured") -> str:
        """Takes a checkpoint now and returns its directory; the job keeps running. Another job can start from
        it until newer checkpoints replace it.

        Args:
            type: "full": it refers to no file of an older checkpoint. "configured" and "incremental": as
                `execution.checkpointing.incremental` says (Flink's CheckpointType).

        Raises:
            ConfigError: not possible now, or it has failed; the message says why.
            AlreadyEnded: the job has ended.
        """

    def savepoint(self, target: str | None = None, *, format: FormatName = "canonical") -> str:
        """Takes a savepoint and returns its directory; the job keeps running.

        `format`: "canonical" (open tables, whatever the state backend) or "native" (the backend's own files,
        if it has any: quicker to take and to restore, and only that backend reads them).

        Raises:
            ConfigError: it could not be taken; the message says why.
        """

    def rescale(self, parallelism: Mapping[str, int], on_progress: OnProgress | None = None) -> None:
        """Changes the parallelism of vertices and returns when the job runs with it, exactly once.

        Args:
            parallelism: By vertex id, vertex name or uid of one of the vertex' operators.
            on_progress: Called now and then while it waits.

        Raises:
            ConfigError: it cannot be done; the message says why, and the job keeps its parallelism.
        """

    def stop(
        self, *, drain: bool = False, target: str | None = None, format: FormatName = "canonical"
    ) -> str:
        """Stops the job with a savepoint and returns its directory, when the job has ended.

        `drain`: as if all input had ended: windows fire, `finish` is called. No job can resume from such a
        savepoint; `result().resumable_savepoint` names one of the same positions, taken just before.
        `format`: see `savepoint`; a drain takes both savepoints in it.

        Raises:
            ConfigError: it could not be stopped; the message says why, and the job keeps running.
        """

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

"""One way to steer a job, wherever it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Protocol, Self

import msgspec

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
from unistream.master.job_info import JobInfo, SinkInfo
from unistream.model.checkpoint_figures import CheckpointsInfo
from unistream.model.messages import TaskFailure

OnProgress = Callable[[JobInfo], None]
"""Takes a new picture of a job."""

__all__ = ["JobClient", "JobInfo", "JobResult", "OnProgress", "checked", "result_of"]


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a job has ended.

    Attributes:
        state: FINISHED, CANCELED, FAILED, or SUSPENDED: its cluster was shut down, and `failure` says how it
            goes on.
        metrics: See `JobInfo.metrics`; `rows_committed` is what became visible in sinks.
        late_rows: See `JobInfo.late_rows`.
        savepoint: Directory of the last savepoint, if any. After a drain it is the terminal one, which proves
            that all was committed.
        resumable_savepoint: Directory of the last savepoint that a job can go on from.
    """

    job: JobId
    name: str
    state: str
    restarts: int = 0
    checkpoints: int = 0
    duration_ms: int = 0
    metrics: dict[str, int] = {}
    late_rows: dict[str, int] = {}
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
        sinks=info.sinks,
        savepoint=info.savepoint,
        resumable_savepoint=info.resumable_savepoint,
        latest_checkpoint=info.latest_checkpoint,
        failure=info.failure,
    )


def checked(result: JobResult) -> JobResult:
    """`result`, if the job has finished: the one place where the end of a job becomes an exception.

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
    raise _KINDS.get(failure.kind if failure is not None else "", UnistreamError)(text)


_KINDS: Final[Mapping[str, type[UnistreamError]]] = {
    kind.__name__: kind for kind in (ConfigError, SuppressRestarts, UserCodeError, Fenced, OutcomeUnknown)
}
"""Errors that keep their class on the way from a worker to who waits for the job."""


class JobClient(Protocol):
    """A submitted job. Usable from any thread; closing it gives up what it holds.

    For an embedded cluster that was made for this one job, closing ends the cluster and with it the
    job, if it still runs.
    """

    @property
    def job_id(self) -> JobId: ...

    @property
    def rest_url(self) -> str | None:
        """Of the cluster that has the job; None: it serves none."""

    def status(self) -> JobInfo:
        """How it is now."""

    def checkpoints(self) -> CheckpointsInfo:
        """What has become of its snapshots: how long each part took, how much was written; kept after its
        end. Durations in ms, sizes in bytes."""

    def wait(self, timeout_s: float | None = None) -> JobResult:
        """Waits for the end.

        Raises:
            TimeoutError: it still runs after `timeout_s`.
            Unreachable: its cluster is gone.
        """

    def result(self, timeout_s: float | None = None) -> JobResult:
        """As `wait`, but a job that did not finish is an error.

        Raises:
            JobCancelled: it was cancelled.
            UnistreamError: it failed; see `checked`.
        """

    def cancel(self) -> None:
        """Asks for its end without a savepoint; returns at once.

        Raises:
            AlreadyEnded: it has finished or failed.
        """

    def checkpoint(self, *, type: str = "configured") -> str:
        """Takes a checkpoint now, whatever the schedule says; the job goes on. Its directory, which a job can
        be started from until newer checkpoints replace it.

        Args:
            type: "full": it refers to no file of an older checkpoint. "configured" and "incremental": as
                `execution.checkpointing.incremental` says (Flink's CheckpointType).

        Raises:
            ConfigError: not possible now, or it has failed; the message says why.
            AlreadyEnded: the job has.
        """

    def savepoint(self, target: str | None = None, *, format: str = "canonical") -> str:
        """Takes a savepoint and returns its directory; the job goes on.

        `format`: "canonical", which is open tables whatever the backend, or "native", which is the backend's
        own files, where it has such: quicker to take and to start from, and read by that backend alone.

        Raises:
            ConfigError: it could not be taken, and why.
        """

    def rescale(self, parallelism: Mapping[str, int], on_progress: OnProgress | None = None) -> None:
        """Gives vertices another parallelism; returns when the job runs so. Nothing is lost or doubled.

        Args:
            parallelism: By vertex id, vertex name or uid of one of the vertex' operators.
            on_progress: Called now and then while it waits.

        Raises:
            ConfigError: it cannot be done, and why; the job goes on as it was.
        """

    def stop(self, *, drain: bool = False, target: str | None = None, format: str = "canonical") -> str:
        """Ends the job with a savepoint and returns its directory, when the job has ended.

        `drain`: as if all input had ended: windows fire, `finish` is called. Nothing can go on from such a
        savepoint; `result().resumable_savepoint` names one of the same positions, taken just before.
        `format`: as in `savepoint`; of a drain both are of it.

        Raises:
            ConfigError: it could not be stopped, and why; it goes on.
        """

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

"""The client of a job whose cluster is in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from typing import Final, Protocol

from unistream.base.closing import Closing
from unistream.base.ids import JobId
from unistream.client.machine.background import awaited
from unistream.client.remote.job_client import JobResult, OnProgress, checked, result_of
from unistream.core.contract import SnapshotRequest
from unistream.master.cluster import Dispatcher
from unistream.model.checkpoint_figures import CheckpointsInfo
from unistream.model.job_info import JobInfo
from unistream.model.job_log_line import LINES_KEPT_MAX, JobLogLine
from unistream.model.snapshot_kind import CheckpointType, FormatName, SavepointFormat, SnapshotKind, TypeName

SNAPSHOT_TIMEOUT_S: Final = 3_600.0  # a job answers within its checkpoint timeout; this bounds a defect
PROGRESS_S: Final = 0.2  # between two calls of `on_progress`


class OwnedCluster(Protocol):
    """What a client needs of a cluster that ends with it."""

    @property
    def rest_url(self) -> str | None: ...

    def settle(self) -> None: ...

    def close(self) -> None: ...


class EmbeddedJobClient(Closing):
    """A job of a cluster in this process. `owned`: the cluster, if it was started for this job only.

    Attributes:
        end_was_seen: `wait` or `result` has returned the result, or the client was closed.
    """

    def __init__(self, dispatcher: Dispatcher, job: JobId, *, owned: OwnedCluster | None = None) -> None:
        self._dispatcher = dispatcher
        self._job = job
        self._owned = owned
        self.end_was_seen = False

    @property
    def job_id(self) -> JobId:
        return self._job

    @property
    def rest_url(self) -> str | None:
        return self._owned.rest_url if self._owned is not None else None

    def status(self) -> JobInfo:
        return self._dispatcher.job(self._job)

    def log(self, after: int = 0) -> Sequence[JobLogLine]:
        return self._dispatcher.log(self._job, after, LINES_KEPT_MAX)

    def checkpoints(self) -> CheckpointsInfo:
        return self._dispatcher.checkpoints(self._job)

    def wait(self, timeout_s: float | None = None) -> JobResult:
        if not self._dispatcher.wait(self._job, timeout_s):
            raise TimeoutError(f"job {self._job} still runs after {timeout_s} s")
        if self._owned is not None:
            self._owned.settle()
        self.end_was_seen = True
        return result_of(self.status())

    def wait_for(self, condition: Callable[[JobInfo], bool], timeout_s: float) -> JobInfo:
        """The first status of the job that satisfies `condition`.

        Raises:
            TimeoutError: there was none in `timeout_s`, or before the job ended.
        """
        info = self._dispatcher.wait_for(self._job, condition, timeout_s)
        if info is None:
            now = self.status()
            why = "" if now.failure is None else f" ({now.failure.kind}: {now.failure.message})"
            raise TimeoutError(f"job {self._job} is {now.state}{why}; the condition did not become true")
        return info

    def result(self, timeout_s: float | None = None) -> JobResult:
        return checked(self.wait(timeout_s))

    def cancel(self) -> None:
        self._dispatcher.cancel(self._job)

    def checkpoint(self, *, type: TypeName = "configured") -> str:
        full = CheckpointType.parse(type) is CheckpointType.FULL
        return self._snapshot(SnapshotRequest(kind=SnapshotKind.CHECKPOINT, full=full))

    def savepoint(self, target: str | None = None, *, format: FormatName = "canonical") -> str:
        form = SavepointFormat.parse(format)
        return self._snapshot(SnapshotRequest(kind=SnapshotKind.SAVEPOINT, target=target, format=form))

    def rescale(self, parallelism: Mapping[str, int], on_progress: OnProgress | None = None) -> None:
        answer = self._dispatcher.rescale(self._job, parallelism)
        deadline_s = time.monotonic() + SNAPSHOT_TIMEOUT_S
        while on_progress is not None and not wait([answer], timeout=PROGRESS_S).done:
            on_progress(self.status())
            if time.monotonic() > deadline_s:
                break
        awaited(answer, deadline_s - time.monotonic(), f"job {self._job} to be rescaled")

    def stop(
        self, *, drain: bool = False, target: str | None = None, format: FormatName = "canonical"
    ) -> str:
        form = SavepointFormat.parse(format)
        kind = SnapshotKind.TERMINATE if drain else SnapshotKind.SUSPEND
        return self._snapshot(SnapshotRequest(kind=kind, target=target, format=form))

    def _snapshot(self, request: SnapshotRequest) -> str:
        answer = self._dispatcher.snapshot(self._job, request)
        return awaited(answer, SNAPSHOT_TIMEOUT_S, f"the {request.kind.title} of job {self._job}")

    def abandon(self, timeout_s: float) -> None:
        """A `close` that runs meanwhile, on another thread, does not wait for the job's tasks any more."""
        self._dispatcher.abandon(timeout_s)

    def close(self) -> None:
        """Ends the cluster if it was started for this job, and with it the job."""
        self.end_was_seen = True
        if self._owned is not None:
            self._owned.close()

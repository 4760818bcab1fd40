"""Clusters of other processes and their jobs, over REST.

Every call ends: by its answer, or by an error after `client.timeout` at the latest. Until then it is sent
again as `unistream.client.remote.policy` says, to whatever process leads the cluster by then.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unistream.base.clock import SystemClock
from unistream.base.closing import Closing
from unistream.base.config import CLIENT_TIMEOUT, Configuration
from unistream.base.errors import NotFound, Unreachable
from unistream.base.ids import JobId
from unistream.client.remote import restarts
from unistream.client.remote.absence import ANSWER_MIN_S, Absence
from unistream.client.remote.address import FixedAddress, LeaderAddress
from unistream.client.remote.answers import decode, error_of, field
from unistream.client.remote.caller import Caller
from unistream.client.remote.http import Response
from unistream.client.remote.job_client import JobResult, OnProgress, checked, identified, result_of
from unistream.client.remote.policy import CallKind
from unistream.client.remote.poll import Poll
from unistream.model.checkpoint_figures import CheckpointFigures, CheckpointsInfo
from unistream.model.job_info import JobInfo, JobSummary, TaskManagerInfo
from unistream.model.job_log_line import JobLogLine
from unistream.model.snapshot_kind import CheckpointType, FormatName, SavepointFormat, TypeName
from unistream.port.metadata import PAGE_ROWS, OutboxRecord

if TYPE_CHECKING:
    from unistream.model.submission import SubmitRequest

SNAPSHOT_TIMEOUT_S: Final = 3_600.0  # as embedded
LEFT: Final = ("LeadershipLost", "JobSuspended")  # kinds of failures of jobs that the next leader has
MSGPACK: Final = "application/msgpack"


def timeout_s(config: Configuration) -> float:
    """`client.timeout` in seconds."""
    return config.get(CLIENT_TIMEOUT) / 1_000


class JobList(msgspec.Struct):
    """The jobs that a cluster lists: its own, and those of others that have ended. `cluster`: its id;
    `notes`: sentences about its metadata."""

    jobs: list[JobSummary]
    cluster: str = ""
    notes: list[str] = []


class _TaskManagers(msgspec.Struct):
    taskmanagers: list[TaskManagerInfo]


class RestClient(Closing):
    """One cluster.

    Args:
        address: ``http://127.0.0.1:8081``, or what finds the cluster's leader, which is closed with this.
        timeout_s: Longest duration of a call, with all its repetitions; None: the default of
            `client.timeout`.
        why_ended: Asked when there is no answer: a sentence about a cluster whose process has ended for good.
        token: What it presents; None: what `client.machine.tokens` finds.

    Raises:
        ClusterEnded: from any method: so `why_ended` says.
        Unreachable: from any method: it does not answer.
    """

    def __init__(
        self,
        address: str | LeaderAddress,
        *,
        timeout_s: float | None = None,
        why_ended: Callable[[], str | None] = lambda: None,
        token: str | None = None,
    ) -> None:
        if isinstance(address, str):
            address = FixedAddress(address.rstrip("/"))
        self.timeout_s = _DEFAULT_TIMEOUT_S if timeout_s is None else timeout_s
        self.why_ended = why_ended
        self._caller = Caller(address, why_ended, token)

    @property
    def url(self) -> str:
        """Where it was reached last."""
        return self._caller.url

    @property
    def is_elected(self) -> bool:
        """It has several masters, of which one leads."""
        return self._caller.is_elected

    def jobs(self, *, timeout_s: float | None = None) -> list[JobSummary]:
        """The cluster's jobs, the newest first. `timeout_s`: for the whole call; None: as for all others."""
        return self.job_list(timeout_s=timeout_s).jobs

    def job_list(self, *, timeout_s: float | None = None) -> JobList:
        """The cluster's jobs, and what else is to be known for a list of them."""
        return decode(self.request("GET", "/unistream/jobs", timeout_s=timeout_s), JobList)

    def commits(self, after: int = 0, limit: int = PAGE_ROWS) -> Sequence[OutboxRecord]:
        """Commits of all jobs behind number `after`, the oldest first; see `MetadataStore.outbox`."""
        path = f"/unistream/commits?after={after}&limit={limit}"
        return decode(self.request("GET", path), list[OutboxRecord])

    def task_managers(self, *, timeout_s: float | None = None) -> list[TaskManagerInfo]:
        """All workers, also starting ones, oldest first. `timeout_s`: see `jobs`."""
        response = self.request("GET", "/unistream/taskmanagers", timeout_s=timeout_s)
        return decode(response, _TaskManagers).taskmanagers

    def submit(self, request: SubmitRequest) -> RestJobClient:
        """Starts a job. A request whose response is lost is sent again under the same id, so it is one job.

        Raises:
            ConfigError: the cluster refuses it.
            NothingListens: nothing listens there, so nothing was started.
            Unreachable: it does not answer; whether it has the job is not known.
        """
        request = identified(request)
        content = msgspec.msgpack.encode(request)
        doubt = (
            "whether the cluster has accepted the job is not known: 'unistream list' shows it, and "
            f"submitting it again with the request id {request.request_id} never starts a second one"
        )
        response = self.request(
            "POST",
            "/unistream/jobs",
            call=CallKind.SUBMIT,
            content=content,
            content_type=MSGPACK,
            doubt=doubt,
        )
        return RestJobClient(self, JobId(field(response, "jobid")), accepted=True)

    def client(self, job: JobId) -> RestJobClient:
        return RestJobClient(self, job)

    def info(self, job: JobId, *, timeout_s: float | None = None) -> JobInfo:
        """A job that one of several masters has left is RECONCILING until the next one has it. Raises
        NotFound. `timeout_s`: see `jobs`."""
        info = decode(self.request("GET", f"/unistream/jobs/{job}", timeout_s=timeout_s), JobInfo)
        left = info.state == "SUSPENDED" and info.failure is not None and info.failure.kind in LEFT
        return msgspec.structs.replace(info, state="RECONCILING") if left and self.is_elected else info

    def refuse_jobs(self, for_s: float) -> bool:
        """The cluster refuses new jobs for this long (at most 5 minutes), 0: it accepts them again. True: it
        has refused them until now."""
        content = msgspec.json.encode({"forMs": int(for_s * 1_000)})
        answer = self.request("PUT", "/unistream/cluster/refusal", call=CallKind.REFUSE, content=content)
        return bool(decode(answer, dict[str, bool])["refused"])

    def shutdown(self) -> None:
        """Requests the end of the cluster."""
        self.request("DELETE", "/cluster", call=CallKind.SHUTDOWN)

    def close(self) -> None:
        self._caller.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        call: CallKind | None = None,
        content: bytes = b"",
        content_type: str = "application/json",
        timeout_s: float | None = None,
        doubt: str = "",
    ) -> Response:
        """The successful answer to a call.

        Args:
            method: GET, POST, …
            path: Below ``/v1``, with the query.
            call: Its kind; None: READ for a GET, otherwise ONCE.
            content: The body.
            content_type: Of the body.
            timeout_s: Instead of the client's own.
            doubt: What is not known if it was sent and not answered.

        Raises:
            UnistreamError: the error that the answer reports.
            Unreachable: there is no answer.
        """
        call = call or (CallKind.READ if method == "GET" else CallKind.ONCE)
        response = self._caller.call(
            call,
            method,
            path,
            content=content,
            content_type=content_type,
            limit_s=self.timeout_s if timeout_s is None else timeout_s,
            longer=timeout_s is None or timeout_s >= self.timeout_s,
            doubt=doubt,
        )
        if response.is_success:
            return response
        raise error_of(response)


@dataclass(frozen=True, slots=True)
class _AsynchronousOperation:
    """An asynchronous operation. `snapshot`: of a job's snapshots the newest of the kind that it takes."""

    what: str
    path: str
    statuses: str
    body: dict[str, Any]
    snapshot: Callable[[CheckpointsInfo], CheckpointFigures | None] | None = None


class RestJobClient(Closing):
    """A job of a remote cluster; see `unistream.client.remote.job_client.JobClient`.

    What waits survives a cluster that is away for up to `client.timeout`. `accepted`: it has the job.
    """

    def __init__(
        self, cluster: RestClient, job: JobId, *, owns_connection: bool = False, accepted: bool = False
    ) -> None:
        self._cluster = cluster
        self._job = job
        self._owns_connection = owns_connection
        self._path = f"/jobs/{job}"
        self._own_path = f"/unistream/jobs/{job}"
        self._absence = Absence(cluster.timeout_s, heard=accepted, refusable=False)

    @property
    def job_id(self) -> JobId:
        return self._job

    @property
    def rest_url(self) -> str | None:
        return self._cluster.url

    def status(self) -> JobInfo:
        """While a wait finds the cluster away, it has less time for the answer."""
        return self._cluster.info(self._job, timeout_s=ANSWER_MIN_S if self._absence.is_current else None)

    def log(self, after: int = 0) -> Sequence[JobLogLine]:
        path = f"/unistream/jobs/{self._job}/log?after={after}"
        return decode(self._cluster.request("GET", path), list[JobLogLine])

    def checkpoints(self) -> CheckpointsInfo:
        return decode(self._cluster.request("GET", f"{self._own_path}/checkpoints"), CheckpointsInfo)

    def wait(self, timeout_s: float | None = None) -> JobResult:
        poll = Poll(timeout_s)
        while poll.next():
            try:
                info = self._absence.ask(self._info, poll.left_s)
            except NotFound as error:
                if not self._absence.heard:
                    raise
                raise restarts.lost_job(self._job, self._cluster.url) from error
            if info is not None and self._absence.heard and restarts.is_lost(info):
                raise restarts.lost_job(self._job, self._cluster.url)
            if info is not None and info.is_terminal:
                return result_of(info)
        raise TimeoutError(f"job {self._job} still runs after {timeout_s} s")

    def result(self, timeout_s: float | None = None) -> JobResult:
        return checked(self.wait(timeout_s))

    def cancel(self) -> None:
        doubt = f"whether job {self._job} is being cancelled is not known: 'unistream list' shows it"
        self._cluster.request("PATCH", f"{self._path}?mode=cancel", call=CallKind.CANCEL, doubt=doubt)

    def checkpoint(self, *, type: TypeName = "configured") -> str:
        body = {"checkpointType": CheckpointType.parse(type).name}
        statuses = f"{self._own_path}/checkpoints"
        return str(
            self._performed(
                _AsynchronousOperation(
                    "a checkpoint", f"{self._path}/checkpoints", statuses, body, _newest_checkpoint
                )
            )["location"]
        )

    def savepoint(
        self, target: str | None = None, *, format: FormatName = "canonical", trigger_id: str | None = None
    ) -> str:
        """`trigger_id`: 32 hex digits, Flink's `triggerId`. The same one again takes no second savepoint of
        this job, and has the outcome of the first, also if that is a failure. None: one of this call."""
        form = SavepointFormat.parse(format)
        path = f"{self._path}/savepoints"
        body = {"target-directory": target, "cancel-job": False, "formatType": form.name}
        return str(
            self._performed(
                _AsynchronousOperation("a savepoint", path, path, body, _newest_savepoint),
                trigger_id=trigger_id,
            )["location"]
        )

    def rescale(self, parallelism: Mapping[str, int], on_progress: OnProgress | None = None) -> None:
        from unistream.core.job import check_widths

        check_widths(parallelism)
        path = f"{self._own_path}/rescale"
        body = {"parallelism": dict(parallelism)}
        self._performed(_AsynchronousOperation("the change of parallelism", path, path, body), on_progress)

    def stop(
        self, *, drain: bool = False, target: str | None = None, format: FormatName = "canonical"
    ) -> str:
        return self.stopped(drain=drain, target=target, format=format)[0]

    def stopped(
        self,
        *,
        drain: bool = False,
        target: str | None = None,
        format: FormatName = "canonical",
        on_progress: OnProgress | None = None,
    ) -> tuple[str, str]:
        """Stops the job as `stop` does, and returns the savepoint and the snapshot from which a job can
        resume. Both are in one answer, since the cluster of an attached job ends with it. `on_progress`:
        called now and then while it waits; what it raises ends the wait, and not the stop."""
        form = SavepointFormat.parse(format)
        body = {"targetDirectory": target, "drain": drain, "formatType": form.name}
        statuses = f"{self._path}/savepoints"
        done = self._performed(
            _AsynchronousOperation("the stop", f"{self._path}/stop", statuses, body, _newest_savepoint),
            on_progress,
        )
        return str(done["location"]), str(done.get("resumable-location", done["location"]))

    def close(self) -> None:
        """Closes the connection if it was opened for this client; the job keeps running."""
        if self._owns_connection:
            self._cluster.close()

    # --- asynchronous operations ------------------------------------------------------------------

    def _info(self, timeout_s: float) -> JobInfo:
        return self._cluster.info(self._job, timeout_s=timeout_s)

    def _performed(
        self,
        operation: _AsynchronousOperation,
        on_progress: OnProgress | None = None,
        *,
        trigger_id: str | None = None,
    ) -> dict[str, Any]:
        """Starts it and waits for its end; what it has made. Its id is chosen here (Flink's `triggerId`) or
        by the caller, so that it is started once, however often the request is sent.

        Raises:
            OutcomeUnknown: the cluster was started again meanwhile; the message says what is known.
        """
        requested_ms = SystemClock().wall_ms()
        body = msgspec.json.encode({**operation.body, "triggerId": trigger_id or uuid.uuid4().hex})
        doubt = f"whether {operation.what} of job {self._job} has begun is not known"
        answer = self._cluster.request(
            "POST", operation.path, call=CallKind.TRIGGER, content=body, doubt=doubt
        )
        try:
            done = self._completed(f"{operation.statuses}/{field(answer, 'request-id')}", on_progress)
        except NotFound as error:
            info, newest = self._after_restart(operation)
            locations = restarts.stopped_with(info, newest, requested_ms)
            if locations is not None:
                return {"location": locations[0], "resumable-location": locations[1]}
            raise restarts.lost_operation(
                operation.what,
                self._job,
                self._cluster.url,
                info=info,
                newest=newest,
                requested_ms=requested_ms,
                snapshot=operation.snapshot is not None,
            ) from error
        return dict(done["operation"])

    def _completed(self, path: str, on_progress: OnProgress | None) -> dict[str, Any]:
        """The last status. Raises NotFound: the cluster does not know the operation any more."""
        absence = Absence(self._cluster.timeout_s, heard=True, recovery_s=0)
        poll = Poll(SNAPSHOT_TIMEOUT_S)
        while poll.next():
            answer = absence.ask(lambda limit_s: self._cluster.request("GET", path, timeout_s=limit_s))
            if answer is None:
                continue
            status = decode(answer, dict[str, Any])
            if status["status"]["id"] == "COMPLETED":
                return status
            info = None if on_progress is None else self._absence.ask(self._info)
            if on_progress is not None and info is not None:
                on_progress(info)
        raise Unreachable(f"{self._cluster.url}{path} has no result after {SNAPSHOT_TIMEOUT_S:.0f} s")

    def _after_restart(
        self, operation: _AsynchronousOperation
    ) -> tuple[JobInfo | None, CheckpointFigures | None]:
        """The job now, None if it is not known; its newest snapshot of the kind that was requested."""
        absence = Absence(self._cluster.timeout_s, heard=True, refusable=False)
        poll = Poll(None)
        while poll.next():
            try:
                info = absence.ask(self._info)
            except NotFound:
                return None, None
            if info is not None:
                break
        return info, None if operation.snapshot is None else operation.snapshot(self.checkpoints())


def _newest_checkpoint(info: CheckpointsInfo) -> CheckpointFigures | None:
    return info.latest_completed


def _newest_savepoint(info: CheckpointsInfo) -> CheckpointFigures | None:
    return info.latest_savepoint


_DEFAULT_TIMEOUT_S: Final = timeout_s(Configuration())

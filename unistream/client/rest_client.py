"""Clusters of other processes and their jobs, over REST."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import httpx
import msgspec

from unistream.base.closing import Closing
from unistream.base.errors import (
    AlreadyEnded,
    ConfigError,
    NotFound,
    NothingListens,
    ProtocolError,
    UnistreamError,
    Unreachable,
)
from unistream.base.ids import JobId
from unistream.client.job_client import JobResult, OnProgress, checked, identified, result_of
from unistream.master.job_info import JobInfo, JobSummary, TaskManagerInfo
from unistream.model.checkpoint_figures import CheckpointsInfo
from unistream.model.elements import CheckpointType, SavepointFormat

if TYPE_CHECKING:
    from unistream.master.job_setup import SubmitRequest

TIMEOUT: Final = httpx.Timeout(10.0, read=60.0)  # a submission may read a large manifest
POLL_S: Final = (0.05, 0.05, 0.1, 0.2, 0.4)  # pauses; all later ones are POLL_MAX_S
POLL_MAX_S: Final = 0.5
SNAPSHOT_TIMEOUT_S: Final = 3_600.0  # as embedded
SUBMISSIONS_MAX: Final = 3  # of one request whose responses are lost
FAILED_POLLS_MAX: Final = 10  # in a row, before the cluster is considered lost

INTERNAL: Final = "Internal server error."
"""The first error in a response that reports a defect of the cluster itself: the client cannot fix it."""

T = TypeVar("T")


class _Jobs(msgspec.Struct):
    jobs: list[JobSummary]


class _TaskManagers(msgspec.Struct):
    taskmanagers: list[TaskManagerInfo]


class RestClient(Closing):
    """One cluster.

    Args:
        url: ``http://127.0.0.1:8081``.

    Raises:
        Unreachable: from any method: it does not answer.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(f"{url!r} is not the address of a REST API, like http://127.0.0.1:8081")
        # trust_env: a proxy of the environment is never used for the loopback interface
        self._http = httpx.Client(base_url=f"{self.url}/v1", timeout=TIMEOUT, trust_env=False)

    def jobs(self, *, timeout_s: float | None = None) -> list[JobSummary]:
        """Newest first. `timeout_s`: of each wait for the cluster; None: as for all other requests."""
        return _decode(self.request("GET", "/unistream/jobs", **_patience(timeout_s)), _Jobs).jobs

    def task_managers(self, *, timeout_s: float | None = None) -> list[TaskManagerInfo]:
        """All workers, also starting ones, oldest first. `timeout_s`: see `jobs`."""
        response = self.request("GET", "/unistream/taskmanagers", **_patience(timeout_s))
        return _decode(response, _TaskManagers).taskmanagers

    def submit(self, request: SubmitRequest) -> RestJobClient:
        """Starts a job. A request whose response is lost is sent again under the same id, so it is one job.

        Raises:
            ConfigError: the cluster refuses it.
            NothingListens: nothing listens there, so nothing was started.
            Unreachable: it does not answer; whether it has the job is not known.
        """
        request = identified(request)
        content = msgspec.msgpack.encode(request)
        headers = {"content-type": "application/msgpack"}
        poll, silence = Poll(None), Unreachable(self.url)
        for attempt in range(SUBMISSIONS_MAX):
            poll.next()
            try:
                response = self.request("POST", "/unistream/jobs", content=content, headers=headers)
                return self.client(JobId(_field(response, "jobid")))
            except Unreachable as error:
                if attempt == 0 and isinstance(error, NothingListens):
                    raise
                silence = error
        raise Unreachable(
            f"{silence}; whether the cluster has accepted the job is not known: 'unistream list' shows it, "
            f"and submitting it again with the request id {request.request_id} never starts a second one"
        ) from silence

    def client(self, job: JobId) -> RestJobClient:
        return RestJobClient(self, job)

    def info(self, job: JobId) -> JobInfo:
        """Raises NotFound."""
        return _decode(self.request("GET", f"/unistream/jobs/{job}"), JobInfo)

    def shutdown(self) -> None:
        """Requests the end of the cluster."""
        self.request("DELETE", "/cluster")

    def close(self) -> None:
        self._http.close()

    def request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        """Raises the error that the response reports."""
        try:
            response = self._http.request(method, path, **arguments)
        except httpx.HTTPError as error:
            kind = NothingListens if isinstance(error, httpx.ConnectError) else Unreachable
            raise kind(
                f"the cluster at {self.url} does not answer: {error or type(error).__name__}"
            ) from error
        if response.is_success:
            return response
        raise _error_of(response)


class RestJobClient(Closing):
    """A job of a remote cluster; see `unistream.client.job_client.JobClient`."""

    def __init__(self, cluster: RestClient, job: JobId, *, owns_connection: bool = False) -> None:
        self._cluster = cluster
        self._job = job
        self._owns_connection = owns_connection

    @property
    def job_id(self) -> JobId:
        return self._job

    @property
    def rest_url(self) -> str | None:
        return self._cluster.url

    def status(self) -> JobInfo:
        return self._cluster.info(self._job)

    def checkpoints(self) -> CheckpointsInfo:
        path = f"/unistream/jobs/{self._job}/checkpoints"
        return _decode(self._cluster.request("GET", path), CheckpointsInfo)

    def wait(self, timeout_s: float | None = None) -> JobResult:
        poll = Poll(timeout_s)
        failures = 0
        while poll.next():
            try:
                info = self.status()
            except Unreachable:
                failures += 1
                if failures >= FAILED_POLLS_MAX:
                    raise
                continue
            failures = 0
            if info.is_terminal:
                return result_of(info)
        raise TimeoutError(f"job {self._job} still runs after {timeout_s} s")

    def result(self, timeout_s: float | None = None) -> JobResult:
        return checked(self.wait(timeout_s))

    def cancel(self) -> None:
        self._cluster.request("PATCH", f"/jobs/{self._job}", params={"mode": "cancel"})

    def checkpoint(self, *, type: str = "configured") -> str:
        body = {"checkpointType": CheckpointType.parse(type).name}
        trigger = self._triggered(f"/jobs/{self._job}/checkpoints", body)
        return self._location(f"/unistream/jobs/{self._job}/checkpoints/{trigger}")

    def savepoint(self, target: str | None = None, *, format: str = "canonical") -> str:
        form = SavepointFormat.parse(format)
        body = {"target-directory": target, "cancel-job": False, "formatType": form.name}
        return self._savepoint("savepoints", body)

    def rescale(self, parallelism: Mapping[str, int], on_progress: OnProgress | None = None) -> None:
        from unistream.core.job import check_widths

        check_widths(parallelism)
        path = f"/unistream/jobs/{self._job}/rescale"
        trigger = self._triggered(path, {"parallelism": dict(parallelism)})
        self._completed(f"{path}/{trigger}", on_progress)

    def stop(self, *, drain: bool = False, target: str | None = None, format: str = "canonical") -> str:
        return self.stopped(drain=drain, target=target, format=format)[0]

    def stopped(
        self, *, drain: bool = False, target: str | None = None, format: str = "canonical"
    ) -> tuple[str, str]:
        """As `stop`; with the savepoint from which a job can resume. In one answer, since the cluster of an
        attached job ends with it."""
        form = SavepointFormat.parse(format)
        body = {"targetDirectory": target, "drain": drain, "formatType": form.name}
        done = self._snapshot("stop", body)["operation"]
        return str(done["location"]), str(done.get("resumable-location", done["location"]))

    def close(self) -> None:
        """Closes the connection if it was opened for this client; the job keeps running."""
        if self._owns_connection:
            self._cluster.close()

    # --- asynchronous operations ------------------------------------------------------------------

    def _savepoint(self, action: str, body: Mapping[str, object]) -> str:
        return str(self._snapshot(action, body)["operation"]["location"])

    def _snapshot(self, action: str, body: Mapping[str, object]) -> dict[str, Any]:
        trigger = self._triggered(f"/jobs/{self._job}/{action}", body)
        return self._completed(f"/jobs/{self._job}/savepoints/{trigger}")

    def _triggered(self, path: str, body: Mapping[str, object]) -> str:
        """Starts the operation; the id under which its status is found."""
        content, headers = msgspec.json.encode(body), {"content-type": "application/json"}
        return _field(self._cluster.request("POST", path, content=content, headers=headers), "request-id")

    def _location(self, path: str) -> str:
        """Waits for the snapshot; its directory."""
        return str(self._completed(path)["operation"]["location"])

    def _completed(self, path: str, on_progress: OnProgress | None = None) -> dict[str, Any]:
        """Waits for the operation; its last status. It continues while the cluster is silent, so a poll that
        fails is repeated, up to `FAILED_POLLS_MAX` times in a row."""
        poll, failures = Poll(SNAPSHOT_TIMEOUT_S), 0
        while poll.next():
            try:
                status = _decode(self._cluster.request("GET", path), dict[str, Any])
                if status["status"]["id"] == "COMPLETED":
                    return status
                if on_progress is not None:
                    on_progress(self.status())
            except Unreachable:
                failures += 1
                if failures >= FAILED_POLLS_MAX:
                    raise
            else:
                failures = 0
        raise Unreachable(f"{self._cluster.url}{path} has no result after {SNAPSHOT_TIMEOUT_S:.0f} s")


class Poll:
    """Pauses that grow: ``while poll.next(): ask()``."""

    def __init__(self, timeout_s: float | None) -> None:
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._pauses = iter(POLL_S)
        self._began = False
        self._never = threading.Event()

    def next(self) -> bool:
        """Waits a little longer than the last time; False after `timeout_s`."""
        if self._began:
            pause_s = next(self._pauses, POLL_MAX_S)
            if self._deadline is not None:
                left_s = self._deadline - time.monotonic()
                if left_s <= 0:
                    return False
                pause_s = min(pause_s, left_s)
            self._never.wait(pause_s)
        self._began = True
        return True


def _patience(timeout_s: float | None) -> dict[str, float]:
    return {} if timeout_s is None else {"timeout": timeout_s}


def _decode(response: httpx.Response, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"the response of {response.request.url} is not as expected: {error}") from error


def _field(response: httpx.Response, name: str) -> str:
    value = _decode(response, dict[str, Any]).get(name)
    if not isinstance(value, str):
        raise ProtocolError(f"the response of {response.request.url} has no {name!r}")
    return value


def _error_of(response: httpx.Response) -> UnistreamError:
    request = response.request
    try:
        texts = msgspec.json.decode(response.content, type=dict[str, list[str]])["errors"]
    except (msgspec.MsgspecError, KeyError):
        texts = [f"{request.method} {request.url}: status {response.status_code}"]
    text = "; ".join(texts)
    if texts[:1] == [INTERNAL] and response.status_code not in _ERRORS:
        return ProtocolError(f"the cluster failed to answer {request.url}; its log says why: {text}")
    return _ERRORS.get(response.status_code, ConfigError)(text)


_ERRORS: Final[Mapping[int, type[UnistreamError]]] = {404: NotFound, 409: AlreadyEnded, 503: Unreachable}

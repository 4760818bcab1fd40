"""The same over HTTP: clusters and jobs of another process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import httpx
import msgspec

from unistream.base.closing import Closing
from unistream.base.errors import (
    AlreadyEnded,
    ConfigError,
    NobodyThere,
    NotFound,
    ProtocolError,
    UnistreamError,
    Unreachable,
)
from unistream.base.ids import JobId
from unistream.client.job_client import JobResult, OnProgress, checked, result_of
from unistream.client.request_ids import identified
from unistream.master.job_info import JobInfo, JobSummary, TaskManagerInfo
from unistream.model.checkpoint_figures import CheckpointsInfo
from unistream.model.elements import CheckpointType, SavepointFormat

if TYPE_CHECKING:
    from unistream.master.job_setup import SubmitRequest

TIMEOUT: Final = httpx.Timeout(10.0, read=60.0)  # a submission may read a large manifest
POLL_S: Final = (0.05, 0.05, 0.1, 0.2, 0.4)  # then every half second
POLL_MAX_S: Final = 0.5
SNAPSHOT_TIMEOUT_S: Final = 3_600.0  # as embedded
SUBMISSIONS_MAX: Final = 3  # of one request whose answers are lost
FAILED_POLLS_MAX: Final = 10  # in a row, before the cluster is taken for gone

INTERNAL: Final = "Internal server error."
"""What a cluster says first of a defect of its own: nothing that who asked could mend."""

T = TypeVar("T")

_JSON: Final = {"content-type": "application/json"}


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
        # No proxy of the environment stands between this and the loopback interface.
        self._http = httpx.Client(base_url=f"{self.url}/v1", timeout=TIMEOUT, trust_env=False)

    def overview(self) -> dict[str, Any]:
        """Counts of workers, slots and jobs."""
        return self._json("GET", "/overview")

    def jobs(self, *, timeout_s: float | None = None) -> list[JobSummary]:
        """Newest first. `timeout_s`: of each wait for the cluster; None: as of every other question."""
        return _decode(self._request("GET", "/unistream/jobs", **_patience(timeout_s)), _Jobs).jobs

    def task_managers(self, *, timeout_s: float | None = None) -> list[TaskManagerInfo]:
        """All workers, starting ones too, in the order in which they came. `timeout_s`: as of `jobs`."""
        answer = self._request("GET", "/unistream/taskmanagers", **_patience(timeout_s))
        return _decode(answer, _TaskManagers).taskmanagers

    def submit(self, request: SubmitRequest) -> RestJobClient:
        """Starts a job. A request whose answer is lost is sent again under the same id, so it is one job.

        Raises:
            ConfigError: the cluster refuses it.
            NobodyThere: nothing listens there, so nothing was started.
            Unreachable: it does not answer; whether it has the job is not known.
        """
        request = identified(request)
        content = msgspec.msgpack.encode(request)
        headers = {"content-type": "application/msgpack"}
        poll, silence = Poll(None), Unreachable(self.url)
        for attempt in range(SUBMISSIONS_MAX):
            poll.next()
            try:
                answer = self._request("POST", "/unistream/jobs", content=content, headers=headers)
                return self.client(JobId(_field(answer, "jobid")))
            except NobodyThere as error:
                if attempt == 0:
                    raise
                silence = error
            except Unreachable as error:
                silence = error
        raise Unreachable(
            f"{silence}; whether it has accepted the job is not known: 'unistream list' shows it, and to"
            f" submit it again under the request id {request.request_id} never makes a second one"
        ) from silence

    def client(self, job: JobId) -> RestJobClient:
        return RestJobClient(self, job)

    def info(self, job: JobId) -> JobInfo:
        """Raises NotFound."""
        return _decode(self._request("GET", f"/unistream/jobs/{job}"), JobInfo)

    def checkpoints(self, job: JobId) -> CheckpointsInfo:
        """Raises NotFound."""
        return _decode(self._request("GET", f"/unistream/jobs/{job}/checkpoints"), CheckpointsInfo)

    def cancel(self, job: JobId) -> None:
        self._request("PATCH", f"/jobs/{job}", params={"mode": "cancel"})

    def checkpoint(self, job: JobId, type: CheckpointType = CheckpointType.CONFIGURED) -> str:
        """Takes one now; its directory."""
        asked = self._ask(job, "checkpoints", {"checkpointType": type.name})
        return self._location(f"/unistream/jobs/{job}/checkpoints/{asked}")

    def savepoint(
        self, job: JobId, target: str | None, form: SavepointFormat = SavepointFormat.CANONICAL
    ) -> str:
        body = {"target-directory": target, "cancel-job": False, "formatType": form.name}
        return self._snapshot(job, "savepoints", body)

    def stop(
        self,
        job: JobId,
        *,
        drain: bool,
        target: str | None,
        form: SavepointFormat = SavepointFormat.CANONICAL,
    ) -> str:
        body = {"targetDirectory": target, "drain": drain, "formatType": form.name}
        return self._snapshot(job, "stop", body)

    def rescale(
        self, job: JobId, parallelism: Mapping[str, int], on_progress: OnProgress | None = None
    ) -> None:
        """See `unistream.client.job_client.JobClient.rescale`."""
        from unistream.core.job import check_widths

        check_widths(parallelism)
        content = msgspec.json.encode({"parallelism": dict(parallelism)})
        path = f"/unistream/jobs/{job}/rescale"
        trigger = _field(self._request("POST", path, content=content, headers=_JSON), "request-id")
        self._completed(
            f"{path}/{trigger}", lambda: None if on_progress is None else on_progress(self.info(job))
        )

    def shutdown(self) -> None:
        """Asks the cluster to end."""
        self._request("DELETE", "/cluster")

    def close(self) -> None:
        self._http.close()

    # --- plumbing ---------------------------------------------------------------------------------

    def _snapshot(self, job: JobId, action: str, body: Mapping[str, object]) -> str:
        return self._location(f"/jobs/{job}/savepoints/{self._ask(job, action, body)}")

    def _ask(self, job: JobId, action: str, body: Mapping[str, object]) -> str:
        """The id under which the outcome is to be had."""
        content = msgspec.json.encode(body)
        answer = self._request("POST", f"/jobs/{job}/{action}", content=content, headers=_JSON)
        return _field(answer, "request-id")

    def _location(self, path: str) -> str:
        """Where the snapshot is, once it is there."""
        return str(self._completed(path, lambda: None)["operation"]["location"])

    def _completed(self, path: str, meanwhile: Callable[[], None]) -> dict[str, Any]:
        """The last answer about an operation that was asked for. It goes on whether we hear of it or not, so
        a cluster that is silent is asked again, up to `FAILED_POLLS_MAX` times in a row."""
        poll, silent = Poll(SNAPSHOT_TIMEOUT_S), 0
        while poll.next():
            try:
                status = self._json("GET", path)
                if status["status"]["id"] == "COMPLETED":
                    return status
                meanwhile()
            except Unreachable:
                silent += 1
                if silent >= FAILED_POLLS_MAX:
                    raise
            else:
                silent = 0
        raise Unreachable(f"{self.url}{path} has no result after {SNAPSHOT_TIMEOUT_S:.0f} s")

    def _json(self, method: str, path: str) -> dict[str, Any]:
        return _decode(self._request(method, path), dict[str, Any])

    def _request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **arguments)
        except httpx.ConnectError as error:
            raise NobodyThere(f"the cluster at {self.url} does not answer: {error}") from error
        except httpx.HTTPError as error:
            raise Unreachable(
                f"the cluster at {self.url} does not answer: {error or type(error).__name__}"
            ) from error
        if answer.is_success:
            return answer
        raise _error_of(answer)


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
        return self._cluster.checkpoints(self._job)

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
        self._cluster.cancel(self._job)

    def checkpoint(self, *, type: str = "configured") -> str:
        return self._cluster.checkpoint(self._job, CheckpointType.parse(type))

    def savepoint(self, target: str | None = None, *, format: str = "canonical") -> str:
        return self._cluster.savepoint(self._job, target, SavepointFormat.parse(format))

    def rescale(self, parallelism: Mapping[str, int], on_progress: OnProgress | None = None) -> None:
        self._cluster.rescale(self._job, parallelism, on_progress)

    def stop(self, *, drain: bool = False, target: str | None = None, format: str = "canonical") -> str:
        form = SavepointFormat.parse(format)
        return self._cluster.stop(self._job, drain=drain, target=target, form=form)

    def close(self) -> None:
        """The job goes on; only the connection is closed, if it was made for this client."""
        if self._owns_connection:
            self._cluster.close()


class Poll:
    """Pauses that grow: ``while poll.next(): ask()``; `next` is False once `timeout_s` is over."""

    def __init__(self, timeout_s: float | None) -> None:
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._pauses = iter(POLL_S)
        self._asked = False
        self._never = threading.Event()

    def next(self) -> bool:
        """Waits a little longer than the last time; False when the time is over."""
        if self._asked:
            pause_s = next(self._pauses, POLL_MAX_S)
            if self._deadline is not None:
                left_s = self._deadline - time.monotonic()
                if left_s <= 0:
                    return False
                pause_s = min(pause_s, left_s)
            self._never.wait(pause_s)
        self._asked = True
        return True


def _patience(timeout_s: float | None) -> dict[str, float]:
    return {} if timeout_s is None else {"timeout": timeout_s}


def _decode(answer: httpx.Response, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(answer.content, type=kind)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"{answer.request.url} gave an answer that does not fit: {error}") from error


def _field(answer: httpx.Response, name: str) -> str:
    value = _decode(answer, dict[str, Any]).get(name)
    if not isinstance(value, str):
        raise ProtocolError(f"{answer.request.url} gave an answer without {name!r}")
    return value


def _error_of(answer: httpx.Response) -> UnistreamError:
    try:
        texts = msgspec.json.decode(answer.content, type=dict[str, list[str]])["errors"]
    except (msgspec.MsgspecError, KeyError):
        texts = [f"{answer.request.method} {answer.request.url}: status {answer.status_code}"]
    text = "; ".join(texts)
    match answer.status_code:
        case 404:
            return NotFound(text)
        case 409:
            return AlreadyEnded(text)
        case 503:
            return Unreachable(text)
    if texts[:1] == [INTERNAL]:
        return ProtocolError(f"the cluster failed to answer {answer.request.url}; its log says why: {text}")
    return ConfigError(text)

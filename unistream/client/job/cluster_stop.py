"""Ends a cluster: as it is, or when all its jobs have ended.

    refuse new jobs ─► list jobs ─► end each of them ─┬─► nothing is left ─► DELETE /cluster ─► it has ended
        ▲ for 30 s, extended       ▲                  ├─► new ones: again
        │                          └──────────────────┘
        └── a job cannot be ended: the cluster accepts jobs again, and goes on

It is composed of requests that may each be sent again. A client that is killed in the middle leaves a cluster
that goes on with what was begun: stops and cancellations that it has accepted are durable. The same call
again waits for those, and begins the rest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from enum import Enum
from functools import partial
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Final, Self

import msgspec

from unistream.base.errors import AlreadyEnded, ConfigError, NothingListens, UnistreamError, Unreachable
from unistream.base.ids import JobId
from unistream.client.machine.background import in_background
from unistream.client.remote.poll import Poll
from unistream.client.remote.rest_client import RestClient, RestJobClient
from unistream.model.graph import JobType
from unistream.model.job_info import TERMINAL_STATES, JobInfo

REFUSED_S: Final = 30.0  # how long new jobs are refused after the last word of this client
EXTENDED_S: Final = 8.0
AT_ONCE: Final = 8  # jobs that are being ended at the same time
TRIES: Final = 2  # a worker may be lost while a savepoint is taken
ENDING_S: Final = 60.0  # a cluster that was requested to end has at least this long
ANSWER_S: Final = 2.0
LOOK_S: Final = 0.5  # between two looks whether the cluster is still there
RECONCILING: Final = "RECONCILING"


class Manner(Enum):
    """What happens to the jobs of a cluster that is ended."""

    SUSPEND = "they are suspended"
    CANCEL = "they are cancelled"
    SAVEPOINT = "they are stopped with savepoints"
    DRAIN = "they are drained"

    @property
    def takes_savepoints(self) -> bool:
        return self in (Manner.SAVEPOINT, Manner.DRAIN)


class EndedJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job. `error`: why it could not be ended; else `state` is how it has ended. `resumable`: the
    savepoint to start from; None: it has none."""

    job: JobId
    name: str
    state: str
    savepoint: str | None = None
    resumable: str | None = None
    error: str | None = None


class StoppedCluster(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for a cluster. `before`: jobs that were stopped with a savepoint earlier in its life."""

    url: str
    ended: bool
    jobs: tuple[EndedJob, ...] = ()
    before: tuple[EndedJob, ...] = ()

    @property
    def failed(self) -> tuple[EndedJob, ...]:
        return tuple(one for one in self.jobs if one.error is not None)


OnJob = Callable[[EndedJob, int], None]
"""Called when a job has ended or cannot be ended, with how many are left."""


class ClusterStop:
    """See the module.

    Args:
        cluster: Is closed by the caller.
        manner: What happens to its jobs.
        target: Folder for savepoints; None: as the jobs are configured.
        timeout_s: For everything before the cluster itself ends.
        is_gone: Its process has ended; None: it is not known which that is.
        on_job: See `OnJob`.
    """

    def __init__(
        self,
        cluster: RestClient,
        manner: Manner,
        *,
        target: str | None = None,
        timeout_s: float,
        is_gone: Callable[[], bool] | None = None,
        on_job: OnJob = lambda _job, _left: None,
    ) -> None:
        self._cluster = cluster
        self._manner = manner
        self._target = target
        self._timeout_s = timeout_s
        self._deadline_s = time.monotonic() + timeout_s
        self._has_died = is_gone or (lambda: False)
        self._is_gone = is_gone or partial(_is_silent, cluster)
        self._on_job = on_job

    def run(self) -> StoppedCluster:
        """Ends it, or says which jobs could not be ended; then the cluster goes on.

        Raises:
            ConfigError: a job can have no savepoint; nothing was stopped.
            TimeoutError: the jobs have ended and the cluster has not, in time.
            Unreachable: it does not answer.
        """
        url = self._cluster.url
        if self._manner is Manner.SUSPEND:
            self._end_cluster()
            return StoppedCluster(url=url, ended=True)
        ended: dict[JobId, EndedJob] = {}
        before: tuple[EndedJob, ...] = ()
        with _Refusal(self._cluster):
            jobs = self._unfinished()
            if self._manner.takes_savepoints:
                self._check(jobs)
                before = self._stopped_before(jobs)
            while jobs:
                ended |= {one.job: one for one in self._end_all(jobs)}
                if any(one.error is not None for one in ended.values()):
                    return StoppedCluster(url=url, ended=False, jobs=tuple(ended.values()), before=before)
                jobs = [job for job in self._unfinished() if job.job not in ended]
            self._end_cluster()
        return StoppedCluster(url=url, ended=True, jobs=tuple(ended.values()), before=before)

    # --- jobs -------------------------------------------------------------------------------------

    def _unfinished(self) -> list[JobInfo]:
        """Jobs that have not ended; those that are being recovered are waited for."""
        poll = Poll(self._left_s())
        while True:
            jobs = [job for job in self._cluster.jobs() if _goes_on(job.state)]
            waits = any(job.state == RECONCILING for job in jobs) and self._manner.takes_savepoints
            if not waits or not poll.next():
                return [self._cluster.info(job.job) for job in jobs]

    def _stopped_before(self, jobs: Sequence[JobInfo]) -> tuple[EndedJob, ...]:
        going_on = {job.job for job in jobs}
        ended = [job for job in self._cluster.jobs() if job.state == "FINISHED" and job.job not in going_on]
        found = [_ended(self._cluster.client(job.job), self._cluster.info(job.job)) for job in ended]
        return tuple(one for one in found if one.savepoint is not None)

    def _check(self, jobs: Sequence[JobInfo]) -> None:
        reasons = [f"{_title(job)} {why}" for job in jobs if (why := _why_no_savepoint(job)) is not None]
        if reasons:
            raise ConfigError(
                f"{'; '.join(reasons)}; nothing was stopped: end such jobs with 'unistream cancel' first, or "
                "stop the cluster without savepoints, which keeps all jobs for the next start"
            )

    def _end_all(self, jobs: Sequence[JobInfo]) -> list[EndedJob]:
        waiting: SimpleQueue[JobInfo] = SimpleQueue()
        for job in jobs:
            waiting.put(job)
        outcomes: SimpleQueue[EndedJob] = SimpleQueue()
        for _ in range(min(AT_ONCE, len(jobs))):
            in_background(partial(self._take_from, waiting, outcomes), "end-jobs")
        found: dict[JobId, EndedJob] = {}
        while len(found) < len(jobs):
            with suppress(Empty):
                one = outcomes.get(timeout=LOOK_S)
                found[one.job] = one
                self._on_job(one, len(jobs) - len(found))
                continue
            if self._has_died():
                raise Unreachable(
                    f"the cluster at {self._cluster.url} has ended meanwhile; what it had begun goes on when "
                    "it is started again, and then the same command stops the rest"
                )
            if not self._left_s():
                late = [self._late(job) for job in jobs if job.job not in found]
                for one in late:
                    self._on_job(one, 0)
                return [*found.values(), *late]
        return list(found.values())

    def _take_from(self, waiting: SimpleQueue[JobInfo], outcomes: SimpleQueue[EndedJob]) -> None:
        with suppress(Empty):
            while self._left_s() > 0:
                info = waiting.get_nowait()
                client = self._cluster.client(info.job)
                try:
                    if self._manner is Manner.CANCEL:
                        outcomes.put(self._cancelled(client))
                    else:
                        outcomes.put(self._stopped(client))
                except (UnistreamError, TimeoutError) as error:
                    outcomes.put(_failed(info, str(error)))

    def _cancelled(self, client: RestJobClient) -> EndedJob:
        with suppress(AlreadyEnded):
            client.cancel()
        client.wait(self._left_s())
        return _ended(client, client.status())

    def _stopped(self, client: RestJobClient) -> EndedJob:
        """Stopped as soon as all its tasks run."""
        poll, tries = Poll(self._left_s()), 0
        while poll.next():
            info = client.status()
            if info.is_terminal:
                return self._with_savepoint(client, info)
            if not _runs(info):
                continue
            tries += 1
            try:
                drain = self._manner is Manner.DRAIN
                path, resumable = client.stopped(drain=drain, target=self._target)
            except AlreadyEnded:
                continue
            except Unreachable:
                raise
            except UnistreamError as error:
                if tries >= TRIES and not client.status().is_terminal:
                    return _failed(info, str(error))
            else:
                state = client.status().state
                return EndedJob(
                    job=info.job, name=info.name, state=state, savepoint=path, resumable=resumable
                )
        return self._late(info)

    def _with_savepoint(self, client: RestJobClient, info: JobInfo) -> EndedJob:
        """It has ended without an answer to us: by the same command before, or for another reason."""
        ended = _ended(client, info)
        if ended.savepoint is not None or info.state == "FINISHED":
            return ended
        why = "" if info.failure is None else f": {info.failure.message}"
        return _failed(info, f"it ended as {info.state} without a savepoint{why}")

    def _late(self, info: JobInfo) -> EndedJob:
        return _failed(info, f"it has not ended within {self._timeout_s:.0f} s; what was begun goes on")

    # --- the cluster ------------------------------------------------------------------------------

    def _end_cluster(self) -> None:
        self._cluster.shutdown()
        poll = Poll(max(ENDING_S, self._left_s()))
        while poll.next():
            if self._is_gone():
                return
        raise TimeoutError(
            f"the cluster at {self._cluster.url} was requested to end and still runs: see its log"
        )

    def _left_s(self) -> float:
        return max(0.0, self._deadline_s - time.monotonic())


class _Refusal:
    """New jobs are refused while it is entered. Should that lapse, nothing is lost: the list of jobs is read
    again before the cluster ends."""

    def __init__(self, cluster: RestClient) -> None:
        self._cluster = cluster
        self._over: Future[None] = Future()
        self._lock = threading.Lock()  # no extension after the end

    def __enter__(self) -> Self:
        self._cluster.refuse_jobs(REFUSED_S)
        in_background(self._extend, "refuse-jobs")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set_result(None)
        with self._lock, suppress(Unreachable):  # it has ended, or accepts jobs again by itself
            self._cluster.request(
                "PUT", "/unistream/cluster/refusal", content=b'{"forMs": 0}', timeout_s=ANSWER_S
            )

    def _extend(self) -> None:
        while True:
            with suppress(TimeoutError):
                return self._over.result(EXTENDED_S)
            with self._lock, suppress(UnistreamError):
                if not self._over.done():
                    self._cluster.refuse_jobs(REFUSED_S)


def _goes_on(state: str) -> bool:
    return state not in TERMINAL_STATES or state == "SUSPENDED"


def _runs(info: JobInfo) -> bool:
    return info.state == "RUNNING" and all(s.state in {"RUNNING", "FINISHED"} for s in info.subtasks)


def _why_no_savepoint(info: JobInfo) -> str | None:
    if info.state == "SUSPENDED":
        why = "" if info.failure is None else f" ({info.failure.message})"
        return f"cannot start{why}"
    if info.job_type == JobType.BATCH.value:
        return "is a BATCH job, which takes no savepoint"
    return None


def _ended(client: RestJobClient, info: JobInfo) -> EndedJob:
    savepoint = client.checkpoints().latest_savepoint if info.savepoint is not None else None
    path = savepoint.path if savepoint is not None and savepoint.kind.is_synchronous else None
    return EndedJob(
        job=info.job,
        name=info.name,
        state=info.state,
        savepoint=path,
        resumable=None if path is None else info.resumable_savepoint or path,
    )


def _failed(info: JobInfo, error: str) -> EndedJob:
    return EndedJob(job=info.job, name=info.name, state=info.state, error=error)


def _title(info: JobInfo) -> str:
    return f"job {info.name!r} ({info.job})"


def _is_silent(cluster: RestClient) -> bool:
    try:
        cluster.jobs(timeout_s=ANSWER_S)
    except NothingListens:
        return True
    except UnistreamError:
        return False
    return False

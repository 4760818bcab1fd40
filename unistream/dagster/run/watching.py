"""The heartbeats of a Dagster run: they say that the process of the run, which watches a job, is alive.

    the job is there ──► attach ──► heartbeat every 10 s ──► release, when the step ends in any way
                                        │
              the link is no longer its own, or the run has ended in Dagster: the step leaves its job;
              the run was forced to be CANCELED, and no newer run watches the job: it is terminated

The key of a link is the root run and the step: the runs that repeat each other (Dagster's retries,
*Re-execute*) have one link, and the newest of them has it. A code location and its step do not make a key:
Dagster has no id for a deployment, so staging and production on one cluster would take each other's link, and
a run that `dagster asset materialize` executes has no code location at all.

A run that was paused and has been reported as failed meanwhile finds out by its next heartbeat, and before it
ends its job. Everything else that goes wrong with a heartbeat is logged: the job does not depend on it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

import dagster as dg
from msgspec import structs

from unistream.base.errors import Unreachable
from unistream.base.ids import JobId
from unistream.client.job.run_links import LinkStore
from unistream.client.machine.background import in_background
from unistream.port.run_links import RunLink, Watcher

HEARTBEAT_EVERY_S: Final = 10.0
MISSED_MAX: Final = 3
"""Heartbeats that may be missing before a run counts as silent, at least."""

CALL_TIMEOUT_S: Final = 10.0  # of one call to the cluster
ASK_WAIT_S: Final = 5.0  # a step that ends does not wait longer to know whether the job is its own
RELEASE_WAIT_S: Final = 5.0

_RECONCILED: Final = "reconciled "
_KEY: Final = "dagster"
_OPERATION_KEY: Final = "dagster-operation"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The run must not go on with its job.

    Attributes:
        reason: A sentence.
        is_canceled: The run is CANCELED in Dagster.
        is_to_end: Nobody else watches the job, so it is ended as that of a run that is terminated.
    """

    reason: str
    is_canceled: bool = False
    is_to_end: bool = False


class LeftToAnother(Exception):
    """The step has left its job, which goes on if its cluster does."""

    def __init__(self, lost: Lost) -> None:
        super().__init__(lost.reason)
        self.lost = lost


class JobWatch(Protocol):
    """Says that a job is watched. No method raises, and none waits longer than some seconds."""

    def begin(self, job: JobId) -> None:
        """The step has its job."""

    @property
    def lost(self) -> Lost | None:
        """What the last heartbeat has found; None: the job is its own, as far as is known."""

    def ask(self) -> Lost | None:
        """Who has the job now, if it is not this run: as `lost`, but asked now."""

    def close(self) -> None:
        """The step has ended."""


class Unwatched:
    """Nobody knows that the job is watched."""

    lost: Lost | None = None

    def begin(self, job: JobId) -> None: ...

    def ask(self) -> Lost | None:
        return None

    def close(self) -> None: ...


def key_of(run: dg.DagsterRun, step: str) -> str:
    """The key of the link of a step of a run, and of all runs that it repeats.

    >>> key_of(dg.DagsterRun("job", run_id="77aa", root_run_id="5f0c", parent_run_id="5f0c"), "orders")
    'dagster 5f0c orders'
    """
    return f"{_KEY} {run.root_run_id or run.run_id} {step}"


def operation_key_of(run: dg.DagsterRun, step: str) -> str:
    """The key of the link of a step that does something with a job whose run is another one; otherwise as
    `key_of`.

    >>> operation_key_of(dg.DagsterRun("job", run_id="77aa"), "savepoint_of_orders")
    'dagster-operation 77aa savepoint_of_orders'
    """
    return f"{_OPERATION_KEY} {run.root_run_id or run.run_id} {step}"


def is_operation(link: RunLink) -> bool:
    """Its run neither lasts as long as the job nor ends it when it is terminated."""
    return link.key.startswith(f"{_OPERATION_KEY} ")


def watcher_of(run: dg.DagsterRun, step: str, attempt: int = 0) -> Watcher:
    """`attempt`: Dagster's retry number of the step."""
    return Watcher(root_run=run.root_run_id or run.run_id, run=run.run_id, step=step, attempt=attempt)


def mark_of(watcher: Watcher) -> Watcher:
    """Who has the link of a run that is reported as ended because it was silent."""
    return structs.replace(watcher, run=f"{_RECONCILED}{watcher.run}")


def run_of(watcher: Watcher) -> str:
    """The run, also of one that is reported as ended.

    >>> run_of(mark_of(Watcher(root_run="5f0c", run="77aa", step="orders")))
    '77aa'
    """
    return watcher.run.removeprefix(_RECONCILED)


class RunWatch:
    """The heartbeats of one step of one run, on a thread of their own.

    Args:
        key: Of the link.
        watcher: This step.
        open_links: See `unistream.client.job.run_links.open_links`; called again after an error.
        status: Of the run in Dagster; None: it was deleted. May raise anything.
        every_s: Between two heartbeats.
    """

    def __init__(
        self,
        key: str,
        watcher: Watcher,
        *,
        open_links: Callable[[], LinkStore | None],
        status: Callable[[], dg.DagsterRunStatus | None],
        every_s: float = HEARTBEAT_EVERY_S,
    ) -> None:
        self._key = key
        self._watcher = watcher
        self._open_links = open_links
        self._status = status
        self._every_s = every_s
        self._job: JobId | None = None
        self._links: LinkStore | None = None
        self._has_link = False
        self._attached_ms = 0
        self._is_first = True
        self._missed = 0
        self._lost: Lost | None = None
        self._beating = threading.Lock()
        self._ended = threading.Event()
        self._keeping: Future[None] | None = None

    def begin(self, job: JobId) -> None:
        if self._keeping is not None:  # a step that comes to its job a second time
            return
        self._job = job
        self._keeping = in_background(self._keep, "heartbeats")

    @property
    def lost(self) -> Lost | None:
        return self._lost

    def ask(self) -> Lost | None:
        if self._keeping is not None and self._lost is None:
            with suppress(TimeoutError):
                in_background(self._beat, "heartbeat").result(ASK_WAIT_S)
        return self._lost

    def close(self) -> None:
        self._ended.set()
        if self._keeping is not None:
            with suppress(TimeoutError):
                self._keeping.result(RELEASE_WAIT_S)

    # --- on its thread ------------------------------------------------------------------------------

    def _keep(self) -> None:
        while True:
            self._beat()
            if self._lost is not None or self._ended.wait(self._every_s):
                break
        with self._beating:
            self._reported(self._release)
            self._close_links()

    def _beat(self) -> None:
        """One heartbeat. Never raises."""
        with self._beating:
            if self._lost is not None:
                return
            taken_by: str | None = None
            try:
                taken_by = self._heartbeat()
                self._missed = 0
            except Exception as error:  # it must not end the stream
                self._miss(error)
            status = None if self._is_first else self._status_now()  # it has just begun
            self._is_first = False
            self._lost = self._judged(taken_by, status)
            if self._lost is not None:
                logger.warning("event=run_lost_its_job run=%s lost=%s", self._watcher.run, self._lost)

    def _judged(self, taken_by: str | None, status: dg.DagsterRunStatus | None) -> Lost | None:
        is_canceled = status is dg.DagsterRunStatus.CANCELED
        if taken_by is not None:
            return Lost(reason=taken_by, is_canceled=is_canceled)
        if status is None or status not in _ENDED:
            return None
        reason = f"run {self._watcher.run} has ended as {status.value} in Dagster"
        return Lost(reason=reason, is_canceled=is_canceled, is_to_end=is_canceled and self._is_last())

    def _is_last(self) -> bool:
        """No run that has attached later watches the job, as far as is known."""
        if self._links is None or self._job is None:
            return False
        try:
            others = self._links.of_job(self._job)
        except Exception as error:
            self._miss(error)
            return False
        return not any(
            link.key != self._key
            and not is_operation(link)
            and link.released_ms is None
            and link.attached_ms >= self._attached_ms
            for link in others
        )

    def _heartbeat(self) -> str | None:
        """Why the job is no longer this run's; None: it is, or nobody knows. Raises what `LinkStore` does."""
        links = self._links = self._links or self._open_links()
        if links is None:
            raise Unreachable("there is no metadata database yet")
        if not self._has_link:
            self._has_link = self._attach(links)
            return None
        if links.heartbeat(self._key, self._watcher):
            return None
        link = links.find(self._key).link
        if link is None:  # the database was removed and made again
            self._has_link = False
            return None
        return _whose(link, self._watcher)

    def _attach(self, links: LinkStore) -> bool:
        """The first time the run takes the link of the run that it repeats, unless it was paused before and
        has ended in Dagster; later only the link of one that is silent: another run may have come since."""
        assert self._job is not None, "it begins with its job"
        link = links.attach(self._key, self._job, self._watcher)
        if not link.is_of(self._watcher):
            is_newest = self._is_first and self._status_now() not in _ENDED
            silent_ms = 0 if is_newest else int(MISSED_MAX * self._every_s * 1_000)
            taken = links.take_over(self._key, self._watcher, silent_ms=silent_ms)
            if taken is not None and taken.is_of(self._watcher):
                link = links.attach(self._key, self._job, self._watcher)
        self._attached_ms = link.attached_ms
        return link.is_of(self._watcher)

    def _release(self) -> None:
        if self._links is not None and self._has_link and self._lost is None:
            self._links.release(self._key, self._watcher)

    def _status_now(self) -> dg.DagsterRunStatus | None:
        try:
            return self._status()
        except Exception as error:  # Dagster's database is away for a moment
            logger.warning("event=run_status_unknown run=%s reason=%r", self._watcher.run, str(error))
            return None

    def _miss(self, error: Exception) -> None:
        """The connection is made again: the cluster may be at another address by then."""
        self._missed += 1
        if self._missed == 1:  # and not each of a long outage
            logger.warning("event=heartbeat_missed run=%s reason=%r", self._watcher.run, str(error))
        self._close_links()

    def _close_links(self) -> None:
        links, self._links = self._links, None
        if links is not None:
            self._reported(links.close)

    def _reported(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # the link becomes silent, of a run that has ended
            logger.warning("event=link_not_released run=%s reason=%r", self._watcher.run, str(error))


_ENDED: Final = frozenset(
    {dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED}
)


def _whose(link: RunLink, watcher: Watcher) -> str:
    if link.watcher == mark_of(watcher):
        return f"run {watcher.run} was silent for too long, and is reported as ended"
    if link.watcher == watcher:
        return f"run {watcher.run} has released its job already"
    return f"run {link.watcher.run} watches job {link.job} now"

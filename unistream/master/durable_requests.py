"""The stops of one job in the `JobStore`: what a user is answered holds under every later leader.

    stored ──► given to the job ──► done: the job has its result, and then the stop is answered
                        └─────────► refused, or failed: withdrawn from the store, and then it is answered

A stop is stored before the job gets it, so the next leader goes on with it. A refusal is answered after it is
withdrawn, so no later leader stops a job whose user was answered that it goes on. While the store does not
answer, the stop is under way; a master that leaves the job leaves its answer to the next one, too.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from unistream.base.crash_points import crash_point
from unistream.base.errors import ConfigError, Fenced, OutcomeUnknown, Transient, Unreachable
from unistream.core.contract import SnapshotRequest
from unistream.master.job_setup import JobSetup
from unistream.master.job_store import JobStore
from unistream.master.open_requests import OpenRequests
from unistream.master.until_written import UntilWritten
from unistream.model.elements import SnapshotKind
from unistream.model.stored_job import StoredRequest

_DRAIN: Final = SnapshotKind.TERMINATE

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Stop:
    """`refused`: it is to be withdrawn, and then answered."""

    wanted: SnapshotRequest
    answer: Future[str] = field(default_factory=Future)
    refused: bool = False


class DurableRequests:
    """See the module. Thread-safe.

    Args:
        requests: What the job answers.
        post: Hands a request to the job.
    """

    def __init__(
        self,
        setup: JobSetup,
        jobs: JobStore,
        until_written: UntilWritten,
        requests: OpenRequests,
        post: Callable[[SnapshotRequest], None],
    ) -> None:
        self._job = setup.job
        self._savepoint_dir = setup.savepoint_dir
        self._jobs = jobs
        self._until_written = until_written
        self._requests = requests
        self._post = post
        self._lock = threading.RLock()
        former = setup.start.stop
        self._stop = None if former is None else _Stop(former)
        self._to_give = self._stop
        self._state: str | None = None  # in which the job has ended

    def snapshot(self, wanted: SnapshotRequest) -> Future[str]:
        """Directory of the snapshot, once it is complete (for a stop: once the job has ended).

        A stop that is requested again while it is under way is the same one. The future raises ConfigError
        with the reason when it cannot be had, AlreadyEnded if it is too late, Unreachable if this master has
        left the job before the stop was done.

        Raises:
            ConfigError: the job is being stopped in another way.
            Fenced, Unreachable, OutcomeUnknown: a stop could not be made durable.
        """
        wanted = replace(wanted, target=wanted.target or self._savepoint_dir)
        if not wanted.kind.is_synchronous:
            return self._give(wanted)
        with self._lock:
            under_way = self._under_way(wanted)
            if under_way is None:
                self._store(wanted)
                under_way = self._stop = _Stop(wanted)
                self._give_stop(under_way)
            return under_way.answer

    def job_runs(self) -> None:
        """The job gets the stop that an earlier leader has stored."""
        with self._lock:
            stop, self._to_give = self._to_give, None
            if stop is not None:
                self._give_stop(stop)

    def cancelled(self) -> None:
        """A cancellation is accepted. Raises as the `JobStore`."""
        self._jobs.set_request(self._job, StoredRequest(cancel=True))

    def job_ended(self, state: str) -> None:
        """Nothing is withdrawn any more: the job's result is durable, or it is left as SUSPENDED."""
        with self._lock:
            self._state = state

    def reject(self, reason: str) -> None:
        """Last call: the stop that is still under way is answered."""
        with self._lock:
            if self._stop is not None:
                self._fail(self._stop, ConfigError(reason))

    # --- one stop ---------------------------------------------------------------------------------

    def _under_way(self, wanted: SnapshotRequest) -> _Stop | None:
        """The same stop, which was requested before; None: the job is not being stopped."""
        stop = self._stop
        if stop is None or stop.answer.done():
            return None
        if _stored(stop.wanted) != _stored(wanted):
            how = "with" if stop.wanted.kind is _DRAIN else "without"
            raise ConfigError(
                f"the job is being stopped already, {how} a drain, with its savepoint in {stop.wanted.target}"
            )
        return stop

    def _store(self, wanted: SnapshotRequest) -> None:
        try:
            self._jobs.set_request(self._job, _stored(wanted))
        except (Transient, OutcomeUnknown):
            self._until_written.add(self._write)  # it may be stored, and nobody was answered that it is
            raise
        crash_point("stop.stored")

    def _give(self, wanted: SnapshotRequest) -> Future[str]:
        request, answer = self._requests.add()
        if request is not None:
            self._post(replace(wanted, id=request))
        return answer

    def _give_stop(self, stop: _Stop) -> None:
        self._give(stop.wanted).add_done_callback(partial(self._answered, stop))

    def _answered(self, stop: _Stop, answer: Future[str]) -> None:
        """By the job."""
        error = answer.exception()
        if error is None:
            _settle(stop.answer, answer.result())
            return
        with self._lock:
            stop.refused = True
            if self._state is not None:
                self._fail(stop, error)
                return
        crash_point("stop.refused")
        self._until_written.add(partial(self._withdraw, stop, error))

    def _withdraw(self, stop: _Stop, error: BaseException) -> None:
        """Raises as the `JobStore`."""
        try:
            self._write()
        except Fenced as fenced:
            _settle(stop.answer, self._left(str(fenced)))
            raise
        crash_point("stop.withdrawn")
        _settle(stop.answer, error)

    def _write(self) -> None:
        """What is to be done, as it is now. Raises as the `JobStore`."""
        with self._lock:
            if self._state is None:
                self._jobs.set_request(self._job, self._to_do)

    @property
    def _to_do(self) -> StoredRequest:
        stop = self._stop
        if stop is None or stop.refused or stop.answer.done():
            return StoredRequest()
        return _stored(stop.wanted)

    def _fail(self, stop: _Stop, error: BaseException) -> None:
        """After the end of the job."""
        _settle(stop.answer, self._left(str(error)) if self._state == "SUSPENDED" else error)

    def _left(self, why: str) -> Unreachable:
        return Unreachable(
            f"this master has left job {self._job} before it was stopped, and the next one stops it: {why}"
        )


def stop_of(request: StoredRequest) -> SnapshotRequest | None:
    """The stop that is to be carried out; None: there is none."""
    if request.stop is None:
        return None
    return SnapshotRequest(kind=request.stop, target=request.target, format=request.savepoint_format)


def _stored(wanted: SnapshotRequest) -> StoredRequest:
    return StoredRequest(stop=wanted.kind, target=wanted.target, savepoint_format=wanted.format)


def _settle(answer: Future[str], outcome: str | BaseException) -> None:
    """The first outcome counts."""
    try:
        if isinstance(outcome, str):
            answer.set_result(outcome)
        else:
            answer.set_exception(outcome)
    except InvalidStateError:
        logger.debug("event=answer_not_wanted outcome=%s", outcome)

"""The stops, savepoints and changes of parallelism of one job in the `JobStore`: what a client is answered
holds under later leaders.

    stored ──► given to the job ──► done: the job has its result (a savepoint: its outcome is stored)
                        │                 └──► answered
                        └─────────► refused, or failed: withdrawn from the store ──► answered

A stop is stored before the job gets it, so the next leader goes on with it. A refusal is answered after it is
withdrawn, so no later leader stops a job whose user was answered that it goes on. While the store does not
answer, the stop is under way; a master that leaves the job leaves its answer to the next one, too. It is the
same with another parallelism: once the job runs with it, that is stored, then the outcome; a leader that
comes between asks the job once more, which has it already. Savepoints are stored only for the trigger id of
their clients (see `operations`): the next leader does not take them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import msgspec

from unistream.base.crash_points import crash_point
from unistream.base.errors import (
    ConfigError,
    Fenced,
    OutcomeUnknown,
    Transient,
    UnistreamError,
    Unreachable,
)
from unistream.core.contract import AnswerRequest, RescaleRequested, SnapshotRequest
from unistream.master import store
from unistream.master.job.job_setup import JobSetup
from unistream.master.job.open_requests import OpenRequests
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.stored_job import StoredRequest

_DRAIN: Final = SnapshotKind.TERMINATE

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _PendingRequest:
    """A stop, a change of parallelism, or a savepoint with a trigger id.

    Attributes:
        triggers: Of its clients; all but a savepoint may have several.
        given: Its id at the job; "": the job does not have it.
        outcome: What the job has answered: to be stored, and then answered.
    """

    wanted: store.Request
    answer: Future[str] = field(default_factory=Future)
    triggers: list[str] = field(default_factory=list)
    given: str = ""
    outcome: str | BaseException | None = None

    @property
    def is_stop(self) -> bool:
        return isinstance(self.wanted, SnapshotRequest) and self.wanted.kind.is_synchronous

    @property
    def is_rescale(self) -> bool:
        return isinstance(self.wanted, store.RescaleAsked)


class DurableRequests:
    """See the module. Thread-safe.

    Args:
        post: Hands a request to the job.
        keep_parallelism: Makes the parallelism that the job has reached durable. Raises as the `JobStore`.
    """

    def __init__(
        self,
        setup: JobSetup,
        jobs: store.JobStore,
        until_written: store.UntilWritten,
        *,
        post: Callable[[SnapshotRequest | RescaleRequested], None],
        keep_parallelism: Callable[[], None],
    ) -> None:
        self._job = setup.job
        self._savepoint_dir = setup.savepoint_dir
        self._jobs = jobs
        self._until_written = until_written
        self._requests = OpenRequests()
        self._post = post
        self._keep_parallelism = keep_parallelism
        self._lock = threading.RLock()
        self._state: str | None = None  # in which the job has ended
        self._operations: store.Operations = setup.start.operations
        former = setup.start.stop
        self._stop = None if former is None else _PendingRequest(former)
        self._asked: dict[str, _PendingRequest] = {}  # by trigger id
        rescales: dict[str, _PendingRequest] = {}  # by digest, which all clients of one request share
        for one in self._operations:
            if not one.is_over:  # also of a stop whose savepoint is complete: the job only has to end
                asked = _PendingRequest(store.request_of(one))
                if isinstance(asked.wanted, store.RescaleAsked):
                    asked = rescales.setdefault(asked.wanted.digest, asked)
                else:
                    asked = self._stop or asked
                self._asked[one.trigger] = asked
                asked.triggers.append(one.trigger)
        self._stop_to_give = self._stop
        self._to_give = list(rescales.values())
        self._given: _PendingRequest | None = None  # of those

    def snapshot(self, wanted: SnapshotRequest, trigger: str | None = None) -> Future[str]:
        """Directory of the snapshot, once it is complete (for a stop: once the job has ended).

        A stop that is requested again while it is under way is the same one, and so is a request with the
        same trigger id. The future raises ConfigError with the reason when it cannot be had, AlreadyEnded if
        it is too late, Unreachable if this master has left the job before it was done.

        Raises:
            ConfigError: the job is being stopped in another way; the trigger id is that of another request.
            Fenced, Unreachable, OutcomeUnknown: it could not be made durable.
        """
        given = replace(wanted, target=wanted.target or self._savepoint_dir)
        with self._lock:
            known = self._known(wanted, trigger)
            if known is not None:
                return known
            stops = wanted.kind.is_synchronous
            if not stops and trigger is None:
                return self._give(given)[1]
            return self._join(
                self._stop_under_way(given) if stops else None, _PendingRequest(given), wanted, trigger
            )

    def rescale(self, wanted: store.RescaleAsked, trigger: str) -> Future[str]:
        """The answer ("") comes once the job runs with it, under this leader and the next. The same change
        that is requested again while it is under way is the same one. Errors are those of `snapshot`."""
        with self._lock:
            known = self._known(wanted, trigger)
            if known is not None:
                return known
            alike = (one for one in self._asked.values() if one.wanted == wanted and one.outcome is None)
            return self._join(next(alike, None), _PendingRequest(wanted), wanted, trigger)

    def _known(self, wanted: store.Request, trigger: str | None) -> Future[str] | None:
        known = None if trigger is None else self.operation(trigger)
        return None if known is None or trigger is None else known.of(wanted, trigger)

    def _join(
        self,
        under_way: _PendingRequest | None,
        new: _PendingRequest,
        wanted: store.Request,
        trigger: str | None,
    ) -> Future[str]:
        """What is under way, or a new one. `wanted`: as its client has sent it."""
        asked = under_way or new
        if under_way is None or trigger is not None:
            self._store(asked, wanted, trigger)
        if under_way is None:
            self._give_durable(asked)
        return asked.answer

    def operation(self, trigger: str) -> store.TriggeredOperation | None:
        """None: there is none under this trigger id, or no longer."""
        with self._lock:
            found, asked = store.find_operation(self._operations, trigger), self._asked.get(trigger)
            if found is None or asked is None:
                return None if found is None else store.operation_of(found)
            return store.TriggeredOperation(store.request_of(found), asked.answer, found.resumes_from)

    def job_runs(self) -> None:
        """The job gets what an earlier leader has stored: the stop, and changes of parallelism, one after the
        other."""
        with self._lock:
            stop, self._stop_to_give = self._stop_to_give, None
            if stop is not None:
                self._give_durable(stop)
            self._give_next()

    def answer(self, command: AnswerRequest) -> None:
        """The job has answered a request; one that is not known is ignored."""
        self._requests.answer(command)

    def cancelled(self) -> None:
        """A cancellation is accepted. Raises as the `JobStore`."""
        self._jobs.set_request(self._job, StoredRequest(cancel=True))

    # --- the end of the job -----------------------------------------------------------------------

    def concluded(
        self,
        answers: Mapping[str, AnswerRequest],
        *,
        reason: str,
        stopped_with: str | None,
        resumes_from: str | None,
    ) -> store.Operations:
        """All of them, when the job has ended as it is recorded.

        Args:
            answers: Of the job, by request.
            reason: Why there is none to all others.
            stopped_with: The savepoint of a stop that the job was restored from.
            resumes_from: Where a job can be resumed from after a drain.
        """
        with self._lock:
            found = self._operations
            for one in set(self._asked.values()):
                outcome: str | BaseException | None = one.outcome
                answer = answers.get(one.given)
                if answer is not None:
                    outcome = answer.path if answer.path is not None else ConfigError(answer.error)
                elif outcome is None and one.is_stop:
                    outcome = stopped_with
                if outcome is None:
                    outcome = ConfigError(reason)
                found = _with_outcome(found, one, outcome, resumes_from)
            return found

    def job_ended(
        self, state: str, known: store.Operations, answers: Mapping[str, AnswerRequest], reason: str
    ) -> None:
        """Answers all that is under way; the last call. Nothing is stored any more: the job's result is
        durable, or it is left as SUSPENDED. `known`, `answers`, `reason`: see `concluded`."""
        with self._lock:
            self._state = state
            if state != "SUSPENDED":
                self._operations = known
        self._requests.close(f"job {self._job} has already ended: {state}")
        for answer in answers.values():
            self._requests.answer(answer)
        self._requests.reject_all(reason)
        self._reject(reason)

    def _reject(self, reason: str) -> None:
        with self._lock:
            for trigger, asked in self._asked.items():
                known = store.find_operation(self._operations, trigger)
                if known is not None and known.path is not None:
                    _settle(asked.answer, known.path)
                self._fail(asked, ConfigError(reason if known is None else known.error or reason))
            if self._stop is not None:
                self._fail(self._stop, ConfigError(reason))

    # --- one of them ------------------------------------------------------------------------------

    def _stop_under_way(self, given: SnapshotRequest) -> _PendingRequest | None:
        """The same stop, which was requested before; None: the job is not being stopped. Raises ConfigError:
        it is being stopped in another way."""
        stop = self._stop
        if stop is None or stop.answer.done():
            return None
        assert isinstance(stop.wanted, SnapshotRequest)
        if _stored(stop.wanted) != _stored(given):
            how = "with" if stop.wanted.kind is _DRAIN else "without"
            raise ConfigError(
                f"the job is being stopped already, {how} a drain, with its savepoint in {stop.wanted.target}"
            )
        return stop

    def _store(self, asked: _PendingRequest, wanted: store.Request, trigger: str | None) -> None:
        """It counts from now on. Raises as the `JobStore`: it does not."""
        known, stop = self._operations, self._stop
        if trigger is not None:
            known = store.begun(known, trigger, wanted)
        if asked.is_stop:
            stop = asked
        try:
            self._jobs.set_request(self._job, _to_do(stop, known))
        except (Transient, OutcomeUnknown):
            self._until_written.add(self._write)  # it may be stored, and nobody was answered that it is
            raise
        if asked.is_stop:
            crash_point("stop.stored")
        elif asked.is_rescale:
            crash_point("rescale.stored")
        else:
            crash_point("savepoint.stored")
        self._operations, self._stop = known, stop
        if trigger is not None:
            asked.triggers.append(trigger)
            self._asked[trigger] = asked
            for old in self._asked.keys() - {one.trigger for one in known}:
                del self._asked[old]

    def _give(self, wanted: store.Request) -> tuple[str, Future[str]]:
        request, answer = self._requests.add()
        if request is not None and isinstance(wanted, store.RescaleAsked):
            self._post(RescaleRequested(request=request, parallelism=dict(wanted.parallelism)))
        elif request is not None and isinstance(wanted, SnapshotRequest):
            self._post(replace(wanted, id=request))
        return request or "", answer

    def _give_next(self) -> None:
        """Gives the job the next change that an earlier leader has stored: it takes one at a time."""
        if self._to_give and (self._given is None or self._given.outcome is not None):
            self._given = self._to_give.pop(0)
            self._give_durable(self._given)

    def _give_durable(self, asked: _PendingRequest) -> None:
        asked.given, answer = self._give(asked.wanted)
        answer.add_done_callback(partial(self._answered, asked))

    def _answered(self, asked: _PendingRequest, answer: Future[str]) -> None:
        """The job has answered a request: stores the outcome, and then answers the clients that wait."""
        error = answer.exception()
        outcome = error or answer.result()
        with self._lock:
            if self._state is not None:
                _settle(asked.answer, outcome) if error is None else self._fail(asked, error)
                return
            asked.outcome = outcome
        if asked.is_stop:
            crash_point("stop.refused")
        self._until_written.add(partial(self._answer, asked, outcome))
        with self._lock:
            self._give_next()

    def _answer(self, asked: _PendingRequest, outcome: str | BaseException) -> None:
        """Raises as the `JobStore`."""
        try:
            if asked.is_rescale and isinstance(outcome, str):
                outcome = self._as_kept(outcome)
            with self._lock:
                self._operations = _with_outcome(self._operations, asked, outcome)
            self._write()
        except Fenced as fenced:
            _settle(asked.answer, self._left(str(fenced)))
            raise
        if asked.is_stop:
            crash_point("stop.withdrawn")
        elif asked.is_rescale:
            crash_point("rescale.answered")
        else:
            crash_point("savepoint.answered")
        _settle(asked.answer, outcome)

    def _as_kept(self, outcome: str) -> str | ConfigError:
        """The outcome for the client, once the new parallelism is stored; an error if it cannot be. Raises as
        the `JobStore`."""
        try:
            self._keep_parallelism()
        except (Fenced, Transient, OutcomeUnknown):
            raise
        except UnistreamError as error:  # what is stored of the job cannot be read
            return ConfigError(
                f"job {self._job} runs with that parallelism, but not under another master, since that could "
                f"not be stored: {error}"
            )
        crash_point("rescale.kept")
        return outcome

    def _write(self) -> None:
        """What is to be done, as it is now. Raises as the `JobStore`."""
        with self._lock:
            if self._state is None:
                self._jobs.set_request(self._job, _to_do(self._stop, self._operations))

    def _fail(self, asked: _PendingRequest, error: BaseException) -> None:
        """Fails a request that the end of the job has overtaken."""
        _settle(asked.answer, self._left(str(error)) if self._state == "SUSPENDED" else error)

    def _left(self, why: str) -> Unreachable:
        return Unreachable(
            f"this master has left job {self._job} before it was done; the next one goes on with it: {why}"
        )


def stop_of(request: StoredRequest) -> SnapshotRequest | None:
    """The stop that is to be carried out; None: there is none."""
    if request.stop is None:
        return None
    return SnapshotRequest(kind=request.stop, target=request.target, format=request.savepoint_format)


def _to_do(stop: _PendingRequest | None, known: store.Operations) -> StoredRequest:
    goes_on = stop is None or stop.outcome is not None or stop.answer.done()
    request = StoredRequest()
    if stop is not None and not goes_on:
        assert isinstance(stop.wanted, SnapshotRequest)
        request = _stored(stop.wanted)
    return msgspec.structs.replace(request, operations=known)


def _stored(wanted: SnapshotRequest) -> StoredRequest:
    return StoredRequest(stop=wanted.kind, target=wanted.target, savepoint_format=wanted.format)


def _with_outcome(
    known: store.Operations,
    asked: _PendingRequest,
    outcome: str | BaseException,
    resumes_from: str | None = None,
) -> store.Operations:
    path = outcome if isinstance(outcome, str) else None
    drains = isinstance(asked.wanted, SnapshotRequest) and asked.wanted.kind is _DRAIN
    return store.settled(
        known,
        lambda one: one.trigger in asked.triggers,
        path=path,
        resumes_from=resumes_from if drains and path is not None else None,
        error=None if path is not None else str(outcome),
    )


def _settle(answer: Future[str], outcome: str | BaseException) -> None:
    """The first outcome counts."""
    try:
        if isinstance(outcome, str):
            answer.set_result(outcome)
        else:
            answer.set_exception(outcome)
    except InvalidStateError:
        logger.debug("event=answer_not_wanted outcome=%s", outcome)

"""One running job in the `JobStore`: what users ask for, how it ends, and what it leaves.

A request that changes how the job ends is durable before the job gets it, so that it outlives the master;
another parallelism before its user is answered. The result is durable before anything is answered or removed
(FLIP-194).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Final, TypeAlias

import msgspec

from unistream.base.errors import ConfigError, OutcomeUnknown, Transient, UnistreamError, Unreachable
from unistream.base.ids import VertexId
from unistream.core import contract
from unistream.master.job_setup import JobSetup
from unistream.master.job_store import JobStore
from unistream.master.open_requests import OpenRequests
from unistream.master.ordered import InOrder, WorkPool
from unistream.model.elements import SnapshotKind
from unistream.model.graph import JobType
from unistream.model.messages import TaskFailure
from unistream.model.stored_job import AttemptCounter, Leftover, Sealed, StoredRequest, StoredResult

Stopping: TypeAlias = tuple[contract.SnapshotRequest, tuple[str | None, Future[str]]]
"""A stop, with the id of the request and its answer."""

_DRAIN: Final = SnapshotKind.TERMINATE
LEADERSHIP_LOST: Final = "LeadershipLost"
TRIES: Final = 3  # each waits as long as the store's own timeouts say
TRACEBACK_CHARS_MAX: Final = 16_000  # of a stored failure: a pointer is small

logger = logging.getLogger(__name__)


class DurableJob:
    """See the module.

    Args:
        pool: Runs what nobody waits for.
        finish_later: Takes a result that could not be made durable yet.

    Attributes:
        stopping: The stop that was accepted last.
        stop_lock: Held while one is accepted.
    """

    def __init__(
        self,
        setup: JobSetup,
        jobs: JobStore,
        pool: WorkPool,
        finish_later: Callable[[StoredResult], None] = lambda _result: None,
    ) -> None:
        self._finish_later = finish_later
        self._setup = setup
        self._jobs = jobs
        self._pool = pool
        self._sealed = setup.start.sealed
        self._used = setup.start.used
        self.stopping: Stopping | None = None
        self._to_request = setup.start.stop
        self.stop_lock = threading.Lock()
        self._used_lock = threading.Lock()
        self._rescales = InOrder(pool)

    def attempting(self, number: int, restarts: int) -> None:
        """An attempt of this number is about to start, after so many restarts: a later leader uses other
        numbers, so that nothing of this attempt is taken for its own. Raises as the `JobStore`: it must not
        start."""
        with self._used_lock:
            known = self._used
            used = AttemptCounter(highest=max(number, known.highest), restarts=max(restarts, known.restarts))
            if used != known:
                self._jobs.set_attempts(self._setup.job, used)
                self._used = used

    def attempted(self, number: int, restarts: int) -> None:
        """The same of an attempt that an engine has begun by itself. Returns at once."""
        if number > self._used.highest:
            self._pool.submit(self._attempted, number, restarts)

    def _attempted(self, number: int, restarts: int) -> None:
        try:
            self.attempting(number, restarts)
        except UnistreamError as error:
            logger.warning("event=attempt_not_stored job=%s reason=%r", self._setup.job, str(error))

    def committing(self, sealed: Sealed) -> None:
        """A BATCH job is about to commit. Raises as the `JobStore`: it must not."""
        if self._setup.graph.job_type is JobType.BATCH and sealed != self._sealed:
            self._jobs.set_committing(self._setup.job, sealed)
            self._sealed = sealed

    # --- requests ---------------------------------------------------------------------------------

    def cancelled(self) -> None:
        """A cancellation is accepted. Raises as the `JobStore`."""
        self._jobs.set_request(self._setup.job, StoredRequest(cancel=True))

    def accepted_before(self, requests: OpenRequests) -> None:
        """Of a stop that an earlier leader has accepted: who requests it again gets the same answer."""
        if self._to_request is not None:
            self.stopping = (self._to_request, requests.add())

    def under_way(self, wanted: contract.SnapshotRequest) -> Future[str] | None:
        """The answer to the same stop, which was requested before; None: the job is not being stopped.

        Raises:
            ConfigError: it is, in another way, which counts.
        """
        if self.stopping is None or self.stopping[1][1].done():
            return None
        first, (_, answer) = self.stopping
        if _stored(first) != _stored(wanted):
            how = "with" if first.kind is _DRAIN else "without"
            raise ConfigError(
                f"the job is being stopped already, {how} a drain, with its savepoint in {first.target}"
            )
        return answer

    def go_on_stopping(
        self, post: Callable[[contract.SnapshotRequest, str | None, Future[str]], None]
    ) -> None:
        """The job runs: what an earlier leader has accepted is requested."""
        if self._to_request is not None and self.stopping is not None:
            self._to_request = None
            post(self.stopping[0], *self.stopping[1])

    def stopped(self, wanted: contract.SnapshotRequest) -> None:
        """A stop is accepted. Raises as the `JobStore`."""
        self._jobs.set_request(self._setup.job, _stored(wanted))

    def withdraw(self, wanted: contract.SnapshotRequest, answer: Future[str]) -> None:
        """The stop was answered: if it failed, the job goes on. Returns at once."""
        if not answer.cancelled() and answer.exception() is not None:
            self._pool.submit(self._withdraw, _stored(wanted))

    def _withdraw(self, wanted: StoredRequest) -> None:
        job = self._setup.job
        try:
            if self._jobs.request(job) == wanted:  # a cancellation may have come meanwhile
                self._jobs.set_request(job, StoredRequest())
        except UnistreamError as error:
            logger.warning("event=stop_not_withdrawn job=%s reason=%r", job, str(error))

    def rescaled(self, parallelism: Mapping[VertexId, int], answer: Future[str]) -> Future[str]:
        """What the user of a change of parallelism gets: `answer`, once the next leader would know it, too.
        Raises Unreachable in it: the job runs so, and that could not be stored; others as the `JobStore`."""
        durable: Future[str] = Future()
        answer.add_done_callback(partial(self._is_rescaled, dict(parallelism), durable))
        return durable

    def _is_rescaled(
        self, parallelism: dict[VertexId, int], durable: Future[str], answer: Future[str]
    ) -> None:
        if not durable.set_running_or_notify_cancel():
            durable = Future()  # nobody waits for it
        error = answer.exception()
        if error is not None:
            durable.set_exception(error)
        elif self._rescales.submit(self._keep_parallelism, parallelism, durable).cancelled():
            durable.set_exception(self._not_kept("the cluster is shut down"))

    def _keep_parallelism(self, parallelism: dict[VertexId, int], durable: Future[str]) -> None:
        try:
            self._store_parallelism(parallelism)
        except (Transient, OutcomeUnknown) as error:
            durable.set_exception(self._not_kept(str(error)))
        except Exception as error:
            durable.set_exception(error)
        else:
            durable.set_result("")

    def _not_kept(self, why: str) -> Unreachable:
        job = self._setup.job
        logger.warning("event=parallelism_not_stored job=%s reason=%r", job, why)
        return Unreachable(
            f"job {job} runs with that parallelism, but not under another master, since that could not be "
            f"stored: {why}; request it again"
        )

    def _store_parallelism(self, parallelism: dict[VertexId, int]) -> None:
        job = self._setup.job
        if self._jobs.pointer(job) is None:
            return  # it has ended meanwhile
        stored = self._jobs.load(job)
        wider = {**stored.parallelism, **parallelism}
        self._jobs.change(msgspec.structs.replace(stored, parallelism=wider))

    # --- the end ----------------------------------------------------------------------------------

    def ended(
        self,
        end: contract.JobEnded,
        final: Iterable[contract.Command],
        *,
        submitted_ms: int,
        ended_ms: int,
        restarts: int,
        savepoint: str | None,
    ) -> StoredResult | None:
        """Makes the result durable. None: it is not, so nothing of the job may be removed now: it was
        suspended, or the store does not answer (then it is finished later). Raises Fenced: another leader
        has the job, and this result does not count."""
        if end.state == "SUSPENDED":
            return None
        setup = self._setup
        result = StoredResult(
            job=setup.job,
            name=setup.graph.name,
            lineage=setup.lineage,
            state=end.state,
            submitted_ms=submitted_ms,
            ended_ms=ended_ms,
            restarts=restarts,
            failure=_short(end.failure),
            savepoint=savepoint,
            checkpoint_root=setup.checkpoint_root,
            leftovers=tuple(_leftover(one) for one in final if isinstance(one, contract.DiscardSnapshot)),
        )
        for _ in range(TRIES):
            try:
                self._jobs.ended(result)
            except (Transient, OutcomeUnknown) as error:
                reason = str(error)
            else:
                return result
        logger.error("event=result_not_durable job=%s state=%s reason=%r", setup.job, end.state, reason)
        self._finish_later(result)
        return None

    def cleaned(self, result: StoredResult) -> None:
        """What it has left is removed. What fails is done by the next leader."""
        try:
            self._jobs.cleaned(result)
        except UnistreamError as error:
            logger.warning("event=job_not_cleaned job=%s reason=%r", result.job, str(error))


def left_behind(event: contract.LeadershipLost) -> contract.JobEnded:
    """How a job ends for a master that leads no more: it goes on elsewhere."""
    failure = TaskFailure(kind=LEADERSHIP_LOST, message=f"another master has the job: {event.reason}")
    return contract.JobEnded(state="SUSPENDED", failure=failure)


def discard_of(leftover: Leftover) -> contract.DiscardSnapshot:
    """The command that removes it."""
    sweep = None
    if leftover.sweep_next_to is not None:
        sweep = contract.Sweep(leftover.sweep_next_to, leftover.sweep_before)
    return contract.DiscardSnapshot(directory=leftover.directory, shared=leftover.shared, sweep=sweep)


def stop_of(request: StoredRequest) -> contract.SnapshotRequest | None:
    """The stop that was accepted; None: there is none."""
    if request.stop is None:
        return None
    return contract.SnapshotRequest(kind=request.stop, target=request.target, format=request.savepoint_format)


def _stored(wanted: contract.SnapshotRequest) -> StoredRequest:
    return StoredRequest(stop=wanted.kind, target=wanted.target, savepoint_format=wanted.format)


def _leftover(command: contract.DiscardSnapshot) -> Leftover:
    sweep = command.sweep
    return Leftover(
        directory=command.directory,
        shared=command.shared,
        sweep_next_to=None if sweep is None else sweep.next_to,
        sweep_before=None if sweep is None else sweep.before,
    )


def _short(failure: TaskFailure | None) -> TaskFailure | None:
    if failure is None:
        return None
    return msgspec.structs.replace(
        failure,
        message=failure.message[:TRACEBACK_CHARS_MAX],
        traceback=failure.traceback[-TRACEBACK_CHARS_MAX:],
    )

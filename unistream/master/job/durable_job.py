"""One running job in the `JobStore`: its attempts, how it ends, and what it leaves.

The result is durable before anything is answered or removed (FLIP-194).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from unistream.base.errors import OutcomeUnknown, Transient, UnistreamError
from unistream.base.ids import VertexId
from unistream.core import contract
from unistream.master.job.job_setup import JobSetup
from unistream.master.loop import WorkPool
from unistream.master.store import JobStore
from unistream.model.graph import JobType
from unistream.model.messages import TaskFailure
from unistream.model.stored_job import AttemptCounter, Leftover, Sealed, StoredOperation, StoredResult

LEADERSHIP_LOST: Final = "LeadershipLost"
TRIES: Final = 3  # each waits as long as the store's own timeouts say
TRACEBACK_CHARS_MAX: Final = 16_000  # of a stored failure: a pointer is small

logger = logging.getLogger(__name__)


class DurableJob:
    """See the module.

    Args:
        pool: Runs what nobody waits for.
        finish_later: Takes a result that could not be made durable yet.
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
        self._used_lock = threading.Lock()
        self.restarts = self._used.restarts  # as last recorded
        self._parallelism: Mapping[VertexId, int] = {}

    def attempting(self, number: int) -> None:
        """An attempt of this number is about to start, after the restarts that are recorded: a later leader
        uses other numbers, so that nothing of this attempt is taken for its own. Raises as the `JobStore`: it
        must not start."""
        with self._used_lock:
            known = self._used
            used = AttemptCounter(
                highest=max(number, known.highest), restarts=max(self.restarts, known.restarts)
            )
            if used != known:
                self._jobs.set_attempts(self._setup.job, used)
                self._used = used

    def attempted(self, number: int) -> None:
        """Stores that an engine has begun an attempt by itself, as `attempting` does, but returns at once."""
        if number > self._used.highest:
            self._pool.submit(self._attempted, number)

    def _attempted(self, number: int) -> None:
        try:
            self.attempting(number)
        except UnistreamError as error:
            logger.warning("event=attempt_not_stored job=%s reason=%r", self._setup.job, str(error))

    def committing(self, sealed: Sealed) -> None:
        """A BATCH job is about to commit. Raises as the `JobStore`: it must not."""
        if self._setup.graph.job_type is JobType.BATCH and sealed != self._sealed:
            self._jobs.set_committing(self._setup.job, sealed)
            self._sealed = sealed

    def committing_staged(self, staged: Sequence[bytes]) -> None:
        """Does what `committing` does, for a job whose engine has left so much to commit."""
        self.committing(Sealed(lineage=self._setup.lineage, staged=tuple(staged)))

    def reached(self, parallelism: Mapping[VertexId, int]) -> None:
        """The job runs with this parallelism, for `keep_parallelism`."""
        self._parallelism = parallelism

    def keep_parallelism(self) -> None:
        """The next leader starts the job with the newest that was reached: one that is tried again later does
        not take the place of a newer one. Raises as the `JobStore`."""
        job, parallelism = self._setup.job, self._parallelism
        if self._jobs.pointer(job) is None:
            return  # it has ended meanwhile
        stored = self._jobs.load(job)
        wider = {**stored.parallelism, **parallelism}
        if wider != stored.parallelism:
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
        resumes_from: str | None,
        operations: tuple[StoredOperation, ...],
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
            resumes_from=resumes_from,
            operations=operations,
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
        sweep = contract.SweepSharedFiles(leftover.sweep_next_to, leftover.sweep_before)
    return contract.DiscardSnapshot(directory=leftover.directory, shared=leftover.shared, sweep=sweep)


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

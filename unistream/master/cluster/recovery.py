"""What a new leader does with the jobs of an earlier one: it cleans up behind those that have ended, and
starts the others again.

    RECONCILING ──► started, under its id, from its newest snapshot
        │  ▲
        │  └── a store or the storage does not answer: again after a while
        └────► SUSPENDED, with the reason: it cannot start. Nothing of it is removed; a later leader (a newer
               version, with the missing file) tries again, and a user may cancel it

One loop: jobs are prepared one after the other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from unistream.base.config import CLAIM_MODE, Configuration
from unistream.base.errors import AlreadyEnded, ConfigError, Fenced, OutcomeUnknown, Transient, UnistreamError
from unistream.base.ids import JobId, LineageId
from unistream.core import contract
from unistream.core.job import with_parallelism
from unistream.master.cluster.stored_release import check_stored
from unistream.master.job import (
    JobSetup,
    Origin,
    discard_of,
    prepare,
    remove_snapshot,
    restore_point,
    stop_of,
)
from unistream.master.loop import Loop
from unistream.master.service import MasterPorts
from unistream.master.store import first_free_checkpoint, newest_restart_point, remove_unpointed, taken_over
from unistream.model.graph import JobGraph, JobType, shown
from unistream.model.job_info import MASTER_LOST, JobInfo
from unistream.model.messages import TaskFailure
from unistream.model.stored_job import (
    Leftover,
    Sealed,
    StoredJob,
    StoredRequest,
    StoredResult,
)
from unistream.model.submission import SubmitRequest
from unistream.port.storage import CheckpointStorage

if TYPE_CHECKING:
    from unistream.master.service import ClusterServices

RETRY_MS: Final = 5_000
CLOSE_TIMEOUT_S: Final = 30.0
RECONCILING: Final = "RECONCILING"
SUSPENDED: Final = "SUSPENDED"

_Work: TypeAlias = JobId | StoredResult

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _WaitingJob:
    """A job that is not started. `failure`: why not, so far. `cancelled`: meanwhile. `graph`: for people,
    once one of them has asked."""

    name: str
    submitted_ms: int
    state: str = RECONCILING
    failure: TaskFailure | None = None
    cancelled: bool = False
    graph: JobGraph | None = None


class JobRecovery:
    """See the module. Thread-safe.

    Args:
        start: Starts a prepared job; what takes its events.

    Attributes:
        found: How many unfinished jobs there were at the beginning.
    """

    def __init__(
        self,
        ports: MasterPorts,
        services: ClusterServices,
        config: Configuration,
        start: Callable[[JobSetup], Callable[[contract.Event], None]],
    ) -> None:
        self._jobs = ports.jobs
        self._leadership = ports.leadership
        self._records = ports.catalogue
        self._services = services
        self._config = config
        self._start = start
        self._lock = threading.Condition()
        self._waiting: dict[JobId, _WaitingJob] = {}
        self.found = 0
        self._loop: Loop[_Work | None, _Work] = ports.create_loop("recovery")
        self._closed = False

    def begin(self) -> None:
        """Finds what is to be done; it is done in the background.

        Raises:
            Unreachable: the store does not answer.
            CorruptSnapshot: what is there cannot be read, or was written by a newer version.
        """
        results = self._jobs.results()
        ended = [result for result in results if not result.cleaned]
        for job in self._jobs.unfinished():
            pointer = self._jobs.pointer(job)
            if pointer is not None:
                self._waiting[job] = _WaitingJob(pointer.name, pointer.submitted_ms)
        self.found = len(self._waiting)
        self._records.settle(results, set(self._waiting))
        for job in sorted(self._waiting, key=lambda job: self._waiting[job].submitted_ms):
            self._loop.post(job)
        if self._waiting:
            logger.info("event=jobs_found epoch=%s count=%d", self._jobs.epoch, self.found)

        def first() -> bool:
            for result in ended:
                self._clean(result)
            self._sweep()
            return True

        self._loop.start(first, self._step)

    def resume(self, job: JobId) -> None:
        """A job was stored, and whether it was is known only now: its submission is sent again. Returns at
        once. Raises Unreachable, CorruptSnapshot."""
        pointer = self._jobs.pointer(job)
        if pointer is not None:
            with self._lock:
                self._waiting[job] = _WaitingJob(pointer.name, pointer.submitted_ms)
            self._loop.post(job)

    def finish_later(self, result: StoredResult) -> None:
        """A job has ended, and the store did not take its result: tried until it does. Returns at once."""
        self._loop.post(result)

    def close(self) -> None:
        """What is not started yet is left to the next leader."""
        self._closed = True
        self._loop.post(None)
        self._loop.join(CLOSE_TIMEOUT_S)

    # --- what is not started ----------------------------------------------------------------------

    def info(self, job: JobId) -> JobInfo | None:
        """A job that is not started; None: it is none of those."""
        with self._lock:
            found = self._waiting.get(job)
            return None if found is None else self._info(job, found)

    def infos(self) -> Sequence[JobInfo]:
        """All that are not started."""
        with self._lock:
            return [self._info(job, found) for job, found in self._waiting.items()]

    def _info(self, job: JobId, found: _WaitingJob) -> JobInfo:
        return JobInfo(
            job=job,
            name=found.name,
            lineage=LineageId(""),
            state=found.state,
            target=self._services.target,
            submitted_ms=found.submitted_ms,
            job_type=(JobType.STREAMING if found.graph is None else found.graph.job_type).value,
            failure=found.failure,
            cluster=self._records.cluster,
        )

    def graph(self, job: JobId) -> JobGraph | None:
        """The graph of a job that is not started, as far as it can be read; None: the job waits for no
        recovery."""
        with self._lock:
            found = self._waiting.get(job)
        if found is None:
            return None
        if found.graph is None:
            try:
                stored = self._jobs.load(job)
                found.graph = shown(with_parallelism(stored.graph, stored.parallelism))
            except UnistreamError as error:
                logger.warning("event=stored_job_not_read job=%s reason=%r", job, str(error))
        return found.graph or JobGraph(name=found.name, vertices=(), edges=())

    def await_start(self, job: JobId, timeout_s: float | None) -> bool:
        """True: it is none of those (any more), or cannot start. False: not within that time."""

        def is_settled() -> bool:
            found = self._waiting.get(job)
            return found is None or found.state == SUSPENDED

        with self._lock:
            return self._lock.wait_for(is_settled, timeout_s)

    def cancel(self, job: JobId) -> bool:
        """False: it is none of those. One that cannot start is given up, and its snapshots stay.

        Raises:
            Fenced, Unreachable, OutcomeUnknown: it could not be made durable.
        """
        with self._lock:
            found = self._waiting.get(job)
            if found is None:
                return False
            if found.state == RECONCILING:
                self._jobs.set_request(job, StoredRequest(cancel=True))
                found.cancelled = True
                return True
        self._give_up(job, found, "CANCELED", None)
        return True

    def refuse(self, job: JobId, what: str) -> None:
        """Raises AlreadyEnded if the job is one of those, so does not run; `what` is the consequence."""
        info = self.info(job)
        if info is not None:
            why = f": {info.failure.message}" if info.failure is not None else ""
            raise AlreadyEnded(f"{what}: job {job} is {info.state}{why}")

    # --- the loop ---------------------------------------------------------------------------------

    def _step(self) -> bool:
        new, again = self._loop.take(RETRY_MS)
        if self._leadership.await_leading() is not None:
            return False  # all of it is the next leader's
        work = new or again
        if isinstance(work, StoredResult):
            self._finish(work)
        elif work is not None and not self._closed:
            self._recover(work)
        elif self._jobs.is_unswept and not self._closed:
            self._sweep()
        return not self._closed

    def _finish(self, result: StoredResult) -> None:
        try:
            self._jobs.ended(result)
        except Fenced as error:
            logger.warning("event=result_fenced job=%s reason=%r", result.job, str(error))
        except UnistreamError as error:
            logger.warning("event=result_not_durable job=%s reason=%r", result.job, str(error))
            self._loop.set_timer(result, RETRY_MS)
        else:
            self._clean(result)

    def _recover(self, job: JobId) -> None:
        with self._lock:
            found = self._waiting.get(job)
        if found is None:
            return
        try:
            stored = self._jobs.load(job)
            check_stored(stored)
            committing = self._jobs.committing(job)
            if committing is not None and not committing.sealed:  # an earlier version has begun
                self._give_up(job, found, "FAILED", _half_committed(found.name))
                return
            sealed = None if committing is None else self._jobs.load_sealed(committing)
            wanted = self._jobs.request(job)
            post = self._start(self._prepared(stored, wanted, sealed))
        except Fenced as error:
            logger.warning("event=job_not_recovered job=%s reason=%r", job, str(error))
        except (Transient, OutcomeUnknown) as error:
            self._note(job, RECONCILING, error)
            self._loop.set_timer(job, RETRY_MS)
        except Exception as error:
            if not isinstance(error, UnistreamError):  # a bug of ours must not stop the others
                logger.exception("event=recovery_defect job=%s", job)
            self._note(job, SUSPENDED, error)
            self._end_if_cancelled(job, found)
        else:
            self._gone(job)  # from now on users reach the job itself
            if wanted.cancel or found.cancelled:
                post(contract.CancelRequested())

    def _gone(self, job: JobId) -> None:
        with self._lock:
            self._waiting.pop(job, None)
            self._lock.notify_all()

    def _prepared(self, stored: StoredJob, wanted: StoredRequest, sealed: Sealed | None) -> JobSetup:
        services, snapshots = self._services, self._jobs.snapshots(stored.job)
        lineage: LineageId | None = stored.lineage
        if (
            stored.graph.job_type is JobType.BATCH
        ):  # without `sealed` nothing is visible: it runs as a new one
            lineage = None if sealed is None else sealed.lineage

        def origin(storage: CheckpointStorage, config: Configuration) -> Origin:
            restore = newest_restart_point(storage, stored.job, snapshots)
            remove_unpointed(storage, stored.job, snapshots)
            if restore is None:
                claimed = config.get(CLAIM_MODE) == "CLAIM"
                restore = restore_point(storage, stored.savepoint, claimed=claimed)
            return Origin(
                artifact=stored.artifact,
                restore=restore,
                lineage=lineage,
                first_checkpoint_id=first_free_checkpoint(snapshots, restore),
                parallelism=stored.parallelism if sealed is None else sealed.parallelism,
                sealed=sealed,
                submitted_ms=stored.submitted_ms,
                stop=None if restore is not None and restore.concludes else stop_of(wanted),
                operations=taken_over(wanted.operations),
                used=self._jobs.attempts(stored.job),
            )

        request = SubmitRequest(
            graph=stored.graph,
            artifact=services.artifacts.get(stored.artifact),
            config=stored.config,
            savepoint=stored.savepoint,
            allow_non_restored=stored.allow_non_restored,
            first_checkpoint_pause_ms=stored.first_checkpoint_pause_ms,
            given=stored.given,
        )
        return prepare(
            request,
            job=stored.job,
            cluster=self._config,
            services=services,
            epoch=self._jobs.epoch,
            origin=origin,
        )

    def _note(self, job: JobId, state: str, error: Exception) -> None:
        logger.warning("event=job_not_recovered job=%s state=%s reason=%r", job, state, str(error))
        failure = TaskFailure(kind=type(error).__name__, message=str(error), recoverable=state == RECONCILING)
        with self._lock:
            if job in self._waiting:
                self._waiting[job].state, self._waiting[job].failure = state, failure
                self._lock.notify_all()

    # --- the end ----------------------------------------------------------------------------------

    def _end_if_cancelled(self, job: JobId, found: _WaitingJob) -> None:
        """It cannot start, and its cancellation was accepted before that was known."""
        try:
            if found.cancelled or self._jobs.request(job).cancel:
                self._give_up(job, found, "CANCELED", None)
        except UnistreamError as error:  # the next leader does it, or the next cancellation
            logger.warning("event=job_not_cancelled job=%s reason=%r", job, str(error))

    def _give_up(self, job: JobId, found: _WaitingJob, state: str, failure: TaskFailure | None) -> None:
        """It ends without having started; its snapshots stay, whatever their retention: what kept it from
        starting may be that they are not understood."""
        now_ms = self._services.clock.wall_ms()
        result = StoredResult(
            job=job,
            name=found.name,
            lineage=LineageId(""),
            state=state,
            submitted_ms=found.submitted_ms,
            ended_ms=now_ms,
            failure=failure,
        )
        self._jobs.ended(result)
        self._records.settle([result])
        self._gone(job)
        self._clean(result)

    def _clean(self, result: StoredResult) -> None:
        """An earlier leader may have died meanwhile: all of it may be repeated."""
        try:
            if result.checkpoint_root:
                storage = self._services.create_storage(result.checkpoint_root)
                for leftover in result.leftovers:
                    _remove(storage, result.job, leftover)
                storage.forget(result.job)
            self._jobs.cleaned(result)
        except UnistreamError as error:
            logger.warning("event=job_not_cleaned job=%s reason=%r", result.job, str(error))

    def _sweep(self) -> None:
        try:
            self._jobs.sweep()
        except UnistreamError as error:
            logger.warning("event=store_not_swept reason=%r", str(error))


def _remove(storage: CheckpointStorage, job: JobId, leftover: Leftover) -> None:
    """Raises Transient, Unreachable: not all of it was removed."""
    try:
        remove_snapshot(storage, job, discard_of(leftover))
    except ConfigError as error:  # a snapshot that the job had claimed from another place: it stays
        logger.warning("event=snapshot_not_removed job=%s reason=%r", job, str(error))


def _half_committed(name: str) -> TaskFailure:
    return TaskFailure(
        kind=MASTER_LOST,
        message=f"the master of the BATCH job {name!r} ended while its output was committed: "
        "some of it may be visible and the rest is lost; look at its sinks before you run it again",
        recoverable=False,
    )

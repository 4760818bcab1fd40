"""The end of a job under its master: what is recorded, answered and removed, and in which order.

    result durable ──► archive and catalogue ──► waiting requests answered ──► snapshots removed

Nothing is answered or removed before the result is durable: a job whose end was seen never starts again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from unistream.base.clock import Clock
from unistream.base.crash_points import crash_point
from unistream.base.errors import Fenced
from unistream.core import contract
from unistream.master.job.durable_job import LEADERSHIP_LOST, DurableJob, left_behind
from unistream.master.job.durable_requests import DurableRequests
from unistream.master.job.job_io import JobIo
from unistream.master.job.job_setup import JobSetup
from unistream.master.job.journal import JobJournal
from unistream.master.job.live import JobEnding, LiveJob
from unistream.master.service import MasterPorts
from unistream.master.shown import archived
from unistream.model.job_log_line import LINES_KEPT_MAX
from unistream.model.stored_job import StoredOperation, StoredResult

RESULT_TIMEOUT_S: Final = 10.0  # longest wait for the catalogue to take a result
CLEANUP_TIMEOUT_S: Final = 30.0  # longest wait for superseded snapshots to be removed

logger = logging.getLogger(__name__)


class JobConclusion:
    """See the module. On the job's own thread."""

    def __init__(
        self,
        setup: JobSetup,
        ports: MasterPorts,
        clock: Clock,
        *,
        journal: JobJournal,
        live: LiveJob,
        durable: DurableJob,
        requests: DurableRequests,
        io: JobIo,
    ) -> None:
        self._setup = setup
        self._ports = ports
        self._clock = clock
        self._journal = journal
        self._live = live
        self._durable = durable
        self._requests = requests
        self._io = io

    def conclude(self, ending: JobEnding, final: Sequence[contract.Command]) -> None:
        """Ends the job as `ending` says, which may become another one: the master leads no more. `final`: the
        machine's commands that wait for the result."""
        end, job = ending.known, self._setup.job
        crash_point("result.before_record")
        ended_ms = self._clock.wall_ms()
        why = f": {end.failure.message}" if end.failure else ""
        reason = f"the job ended as {end.state} before it was done{why}"
        answers = {c.request: c for c in final if isinstance(c, contract.AnswerRequest)}
        snapshots = self._journal.snapshots
        concluded = self._requests.concluded(
            answers,
            reason=reason,
            stopped_with=snapshots.newest_savepoint if self._ends_a_stop(end) else None,
            resumes_from=snapshots.resumable,
        )
        try:
            result = self._make_durable(end, final, ended_ms, concluded)
        except Fenced as error:
            logger.warning("event=result_fenced job=%s state=%s", job, end.state)
            end = ending.outcome = left_behind(contract.LeadershipLost(reason=str(error)))
            final, result, answers = (), None, {}
        self._archive(end, ended_ms)
        restarts = self._live.view().restarts
        if not self._journal.ended(end.state, restarts, ended_ms).wait(RESULT_TIMEOUT_S):
            logger.error("event=result_not_recorded job=%s state=%s", job, end.state)
        crash_point("result.recorded")
        ending.recorded_ms = ended_ms
        self._requests.job_ended(end.state, concluded, answers, reason)
        ending.is_over.set()
        if result is not None:
            self._clean_up(final, result)
        logger.info("event=job_ended job=%s state=%s", job, end.state)

    def _make_durable(
        self,
        end: contract.JobEnded,
        final: Sequence[contract.Command],
        ended_ms: int,
        operations: tuple[StoredOperation, ...],
    ) -> StoredResult | None:
        """See `DurableJob.ended`."""
        snapshots = self._journal.snapshots
        return self._durable.ended(
            end,
            (*self._io.left, *final),
            submitted_ms=self._journal.submitted_ms,
            ended_ms=ended_ms,
            restarts=self._live.view().restarts,
            savepoint=snapshots.newest_savepoint,
            resumes_from=snapshots.resumable,
            operations=operations,
        )

    def _ends_a_stop(self, end: contract.JobEnded) -> bool:
        """The job has ended with the savepoint of a stop under an earlier leader."""
        own = self._setup.own_restore
        return own is not None and own.concludes and end.state == "FINISHED"

    def _archive(self, end: contract.JobEnded, ended_ms: int) -> None:
        """What the job's pages show from now on is kept with its history. Never fails the end of a job."""
        if end.failure is not None and end.failure.kind == LEADERSHIP_LOST:
            return  # another master has the job, and its history
        try:
            info = self._live.info_at_end(end, ended_ms)
            log = self._journal.log.after(0, LINES_KEPT_MAX)
            self._ports.catalogue.archive(archived(info, self._live.checkpoints(), log))
        except Exception as error:
            self._ports.on_defect(error)
            logger.exception("event=job_not_archived job=%s", self._setup.job)

    def _clean_up(self, final: Sequence[contract.Command], result: StoredResult) -> None:
        discards = [self._io.discard(c) for c in final if isinstance(c, contract.DiscardSnapshot)]
        self._ports.io.wait([*discards, *self._io.preparing], CLEANUP_TIMEOUT_S)
        self._ports.io.wait([self._io.forget()], CLEANUP_TIMEOUT_S)
        if self._io.is_clean:
            self._durable.cleaned(result)  # else the next leader removes the rest

"""What a backfill tells the cluster of its job of how far it is (`client.procedures`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from unistream.backfill.jobs import reached
from unistream.backfill.journal import BackfillJournal
from unistream.base.config import Configuration
from unistream.base.ids import JobId
from unistream.client.job.lookup import find_job
from unistream.client.job.submission import connect
from unistream.client.remote.procedures import ProcedureReporter
from unistream.client.remote.rest_client import RestClient
from unistream.core.backfill import BackfillPhase, BackfillProgress, Verdict
from unistream.model.procedures import ProcedureKind, ProcedureReport, ProcedureState

STEPS: Final = (
    "stop the job with a savepoint",
    "commit what it had staged",
    "compute the range again",
    "replace it in one transaction",
    "resume the job",
)
DONE: Final[Mapping[BackfillPhase, int]] = {
    BackfillPhase.STOPPING: 0,
    BackfillPhase.STOPPED: 1,
    BackfillPhase.FENCED: 2,
    BackfillPhase.COMPUTING: 2,
    BackfillPhase.STAGED: 3,
    BackfillPhase.REPLACED: 4,
}
"""How many steps are done in a phase; one that is given up does no more of them."""


def reporter_of(journal: BackfillJournal, goes_on: str) -> ProcedureReporter:
    """Reports of the process that works on a backfill. `goes_on`: the command that goes on with it."""
    order = journal.order
    report = ProcedureReport(
        id=order.id,
        kind=ProcedureKind.BACKFILL,
        job_name=order.job_name,
        job=None if order.job is None else JobId(order.job),
        subject=f"{order.range.text} of {order.table}",
        steps=STEPS,
        done=DONE.get(journal.progress.phase, 0),
        state=ProcedureState.RUNS,
        goes_on=goes_on,
    )
    return ProcedureReporter(lambda: _cluster_of(journal), report)


def report(reporter: ProcedureReporter, progress: BackfillProgress, text: str) -> None:
    """A step is done; `text` says it to people."""
    if progress.phase is not BackfillPhase.ENDED:
        reporter.done(DONE.get(progress.phase, 0), text)
        return
    replaced = progress.verdict is Verdict.REPLACED
    reporter.ended(
        ProcedureState.DONE if replaced else ProcedureState.GIVEN_UP, text if replaced else progress.reason
    )


def _cluster_of(journal: BackfillJournal) -> RestClient:
    """That of the job, also of the one that goes on: a cluster that was started for a job ends with it."""
    order, resumed = journal.order, journal.progress.resumed_job
    config = Configuration(order.config)
    if order.job is None:
        return connect(config)
    if order.session or resumed is None:
        return reached(order)
    with find_job(config, resumed) as job:
        url = job.rest_url
    return reached(order) if url is None else RestClient(url)

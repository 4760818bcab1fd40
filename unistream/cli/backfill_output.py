"""What a person sees of a backfill."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

from unistream.cli.errors import report
from unistream.cli.output import print_facts
from unistream.cli.tables import Cell

if TYPE_CHECKING:
    from unistream.backfill.journal import BackfillJournal
    from unistream.backfill.prepare import BackfillPlan
    from unistream.core.backfill import BackfillProgress
    from unistream.model.job_info import JobInfo


class BackfillOutput:
    """Steps as lines on stderr, and the job that computes as one that changes in place (unless `quiet`)."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._progress: Any = None

    def __enter__(self) -> None:
        """Shows nothing yet."""

    def __exit__(self, *_: object) -> None:
        self._close()

    def step(self, progress: BackfillProgress) -> None:
        """A step is done."""
        self._close()
        report(step_line(progress))

    def job(self, info: JobInfo) -> None:
        """How far the job is that computes."""
        if self._quiet or not sys.stdout.isatty():
            return
        if self._progress is None:
            from unistream.cli.progress import ProgressLine

            self._progress = ProgressLine(info)
        self._progress.update(info)

    def _close(self) -> None:
        progress, self._progress = self._progress, None
        if progress is not None:
            progress.close()


def step_line(progress: BackfillProgress) -> str:
    """A step that is done, for people."""
    from unistream.core.backfill import BackfillPhase

    match progress.phase:
        case BackfillPhase.STOPPED:
            return f"stopped: {progress.savepoint}"
        case BackfillPhase.FENCED:
            return f"fenced: version {progress.fence_version} of the table, {progress.rows_before:,} rows go"
        case BackfillPhase.COMPUTING:
            return f"computing (attempt {progress.attempt})"
        case BackfillPhase.STAGED:
            files = f"{progress.rows_staged:,} rows in {len(progress.staged)} files"
            return f"staged: {files}, {progress.rows_outside:,} results outside of the range dropped"
        case BackfillPhase.REPLACED:
            return f"replaced: version {progress.version}"
        case BackfillPhase.GIVEN_UP:
            return f"given up: {progress.reason}"
        case BackfillPhase.ENDED:
            return f"resumed: job {progress.resumed_job}" if progress.resumed_job else "ended"
    return "stopping the job"


def print_plan(plan: BackfillPlan) -> None:
    """What would be replaced, before anything is changed."""
    print_facts(facts(plan))


def facts(plan: BackfillPlan) -> list[tuple[str, Cell]]:
    """The facts of a plan, each with its label."""
    job = f"{plan.job_name} ({plan.job}) on {plan.cluster}" if plan.job else f"{plan.job_name}, does not run"
    facts: list[tuple[str, Cell]] = [
        ("range", f"{plan.begin} to {plan.end}, of {plan.column}"),
        ("table", f"{plan.table}, version {plan.table_version}, {plan.rows:,} rows of the range go"),
        ("reads", f"event times {plan.reads_from} to {plan.reads_to}"),
        *(("history", f"{label}: {low} to {high}") for label, (low, high) in plan.history.items()),
        ("job", job),
    ]
    if plan.resumes is not None:
        facts.append(("resumes", f"from the savepoint with which it is stopped, as job {plan.resumes}"))
    if plan.finished_to is not None:
        facts.append(("finished", f"results before {plan.finished_to}"))
    facts += [("note", note) for note in plan.notes]
    return facts


def how_it_stands(journal: BackfillJournal) -> str:
    """How far a backfill is, and how to go on."""
    from unistream.core.backfill import BackfillPhase

    phase = journal.progress.phase
    if phase is BackfillPhase.ENDED:
        return "the backfill has ended"
    stays = "" if phase is BackfillPhase.STOPPING or journal.order.job is None else ", the job is stopped"
    return f"the backfill is unfinished (done: {phase.value}{stays}): {how_to_go_on(journal)}"


def how_to_go_on(journal: BackfillJournal) -> str:
    """The commands for an unfinished backfill."""
    command = go_on_command(journal)
    return f"go on with '{command}', or give it up with '{command} --abort'"


def go_on_command(journal: BackfillJournal) -> str:
    """Goes on with a backfill where it stopped."""
    root = journal.folder.parent
    words = ["unistream", "backfill", journal.order.job_name]
    from unistream.client.machine import home

    if root != home.home() / home.BACKFILLS:
        words += ["--state", str(root)]
    return shlex.join(words)

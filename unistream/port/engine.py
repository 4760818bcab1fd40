"""An engine that runs the stages of bounded jobs by itself, as Spark does: it places tasks, moves rows
between stages, repeats what was lost and may run slow tasks twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from unistream.base.ids import AttemptId, JobId
from unistream.model.bounded import BoundedJob, EngineReport, StageProgress
from unistream.model.messages import CommitReported, LogReported, TaskMetrics


class EngineListener(Protocol):
    """Gets what happens to one job, from any thread."""

    def report(self, report: EngineReport) -> None:
        """A change of the run. After `StagesRan`, `CommittersStored`,
        `StagedCommitted` or `RunFailed` nothing of it runs."""

    def metrics(self, attempt: AttemptId, metrics: TaskMetrics) -> None:
        """The final counters of an attempt, before the report that it has finished."""

    def committed(self, report: CommitReported) -> None:
        """Output is visible."""

    def logged(self, report: LogReported) -> None:
        """Lines of an attempt that has ended."""

    def progress(self, stages: Sequence[StageProgress]) -> None:
        """All stages of the run, a few times a second while something changes."""

    def page(self, url: str | None) -> None:
        """Where people see the run in the engine's own UI; None: it has none. At the begin of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRun:
    """What an engine is to run.

    Attributes:
        run: A number that the job has not used before, for a commit that of its stages.
        first_attempt: The number of each subtask's first attempt in it.
        listener: Gets all that happens.
    """

    job: BoundedJob
    run: int
    first_attempt: int
    listener: EngineListener


class BatchEngine(Protocol):
    """Runs bounded jobs. All methods but `close` return at once; one thing at a time is done for a job."""

    def run_stages(self, run: EngineRun) -> None:
        """Runs all stages, which make nothing visible; `StagesRan` or `RunFailed` follows."""

    def store_committers(self, run: EngineRun, staged: Sequence[bytes]) -> None:
        """Stores what the committers of a bootstrap have: they take what a run has staged into their state;
        `CommittersStored` or `RunFailed` follows."""

    def commit(self, run: EngineRun, staged: Sequence[bytes]) -> None:
        """Commits what a run has staged; `StagedCommitted` or `RunFailed` follows. Safe to repeat."""

    def cancel(self, job: JobId) -> None:
        """Ends what runs for the job; `RunFailed` follows, unless it has just ended otherwise."""

    def close(self) -> None:
        """Ends all, and waits for it within a bound."""

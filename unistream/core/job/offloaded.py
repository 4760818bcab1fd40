"""What becomes of events about the bounded part of a stream that an engine runs."""

from __future__ import annotations

from unistream.core.contract import DiscoveryFailed, SplitsDiscovered
from unistream.core.execution import EngineRegion, Execution
from unistream.core.job.life import JobLife
from unistream.model.bounded import AttemptsChanged, EngineReport, RunFailed, StagedCommitted, StagesRan
from unistream.model.messages import TaskFailure


class OffloadedEvents:
    """Dispatches them. A job without such a part gets none, or ignores them."""

    def __init__(self, life: JobLife) -> None:
        self._life = life

    @property
    def _region(self) -> EngineRegion:
        return self._life.parts.scheduler.engine

    def found(self, event: SplitsDiscovered | DiscoveryFailed) -> None:
        """The splits of a source, or why there are none."""
        if isinstance(event, SplitsDiscovered):
            self._region.discovered(event)
        elif self._region.is_active and not self._region.runs:
            self._life.fail(event.failure, self._region.fail(event.failure))

    def reported(self, event: EngineReport) -> TaskFailure | None:
        """A change of the run, or its end."""
        region = self._region
        if not region.is_current(event.run):
            return None
        match event:
            case AttemptsChanged(attempts=attempts):
                if not region.cancelled:
                    region.changed(attempts)
                    return self._life.tasks_changed()
            case StagesRan():
                return self._ran(event)
            case RunFailed(failure=failure, attempt=attempt):
                self._failed(region.ended(failure, attempt.subtask if attempt is not None else None))
            case StagedCommitted():
                raise AssertionError("the bounded part of a stream commits nothing")
        return None

    def _ran(self, event: StagesRan) -> TaskFailure | None:
        region = self._region
        if region.cancelled:
            region.ended(None)
            return None
        failed = region.ran(event.stored)
        if failed is not None:
            self._failed(failed)
            return None
        failures = [self._life.task_finished(execution) for execution in region.executions]
        failures.append(self._life.tasks_changed())
        return next((failure for failure in failures if failure is not None), None)

    def _failed(self, failed: tuple[TaskFailure, Execution] | None) -> None:
        if failed is not None:
            self._life.fail(*failed)

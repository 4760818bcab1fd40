"""Requests to drain workers, until the machine has decided on them."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from unistream.base.errors import Busy, NotFound
from unistream.base.ids import TaskManagerId
from unistream.core import resource
from unistream.model.job_info import DrainPhase, DrainStatus, TaskManagerInfo


@dataclass(frozen=True, slots=True)
class DrainRequest:
    """A request of a user. `answer`: None when the machine drains the worker, an error if it does nothing."""

    wanted: resource.DrainWanted
    answer: Future[None] = field(default_factory=Future)

    def decided(self, commands: list[resource.ResourceCommand]) -> None:
        """Answers. No commands: it was drained already."""
        refused = [one.reason for one in commands if isinstance(one, resource.RefuseDrain)]
        if refused:
            self.answer.set_exception(Busy(refused[0]))
        else:
            self.answer.set_result(None)


def drain_status(
    task_manager: TaskManagerId, worker: TaskManagerInfo | None, gone: Mapping[TaskManagerId, str]
) -> DrainStatus:
    """How far the drain of a worker is. `gone`: workers of before, and why they ended.

    Raises:
        NotFound: there is no such worker, or nobody drains it.
    """
    why = gone.get(task_manager)
    if worker is not None and worker.draining:
        return DrainStatus(phase=DrainPhase.DRAINING, jobs=worker.jobs)
    if worker is None and why == resource.DRAINED:
        return DrainStatus(phase=DrainPhase.DRAINED)
    if worker is None and why is not None:
        return DrainStatus(phase=DrainPhase.LOST, reason=why)
    if worker is None:
        raise NotFound(f"there is no worker {task_manager}")
    raise NotFound(f"worker {task_manager} is not being drained")

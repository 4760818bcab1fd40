"""Planted bugs of stored results and of parallelism; the table of all is in `mutants`."""

from __future__ import annotations

from typing import Any, cast

from msgspec import structs

from tests.support.mutants_shared import Patch
from unistream.core.contract.status import JobCause
from unistream.core.execution.job_run import JobRun
from unistream.core.execution.partition_tracker import PartitionTracker
from unistream.core.job import adaptive
from unistream.core.job.adaptive import AdaptiveScheduling
from unistream.core.job.deliveries import Releases
from unistream.core.job.life import JobLife
from unistream.core.job.rescaling import Rescaling
from unistream.core.job.scaling import fit, with_parallelism
from unistream.core.restore import state_assignment
from unistream.master.cluster.worker_gateway import WorkerGateway
from unistream.model.execution_state import ExecutionState
from unistream.model.messages import TaskFailure
from unistream.worker.task import failures

# --- stored results ---------------------------------------------------------------------------------


def consumer_too_early() -> list[Patch]:
    def is_produced(self: Any, partition: Any) -> bool:
        return self.state(partition.producer) in (ExecutionState.RUNNING, ExecutionState.FINISHED)

    return [(JobRun, "is_produced", is_produced)]


def lost_forgotten() -> list[Patch]:
    return [(PartitionTracker, "lost", lambda _self, _task_manager: ())]


def lost_not_named() -> list[Patch]:
    return [(failures, "_lost_partition", lambda _error: None)]


def never_released() -> list[Patch]:
    return [(PartitionTracker, "_sends", lambda _self, _released: [])]


def released_too_early() -> list[Patch]:
    """When the first of its readers has finished."""
    original = PartitionTracker._reading_of

    def reading_of(self: Any, link: Any, number: int) -> Any:
        key, reading = original(self, link, number)
        return key, min(reading, 1)

    return [(PartitionTracker, "_reading_of", reading_of)]


def never_repeated() -> list[Patch]:
    return [(Releases, "undelivered", lambda _self, _send, _event: None)]


def never_told_over() -> list[Patch]:
    return [(WorkerGateway, "_is_over", lambda _self, _job: False)]


def lost_while_waiting() -> list[Patch]:
    """Results lost with a worker are a failure, also when no task runs and all will start again; and the job
    keeps waiting for slots, with that restart pending."""
    original, go = JobLife.lost, cast(Any, JobLife._go)

    def keeps_waiting(self: Any, cause: Any, why: str) -> None:
        if cause is not JobCause.FAILURE or not self.state.is_waiting:
            go(self, cause, why)

    def lost(self: Any, task_manager: Any, reason: str) -> None:
        waits = self.state.is_waiting
        held = tuple(self.parts.run.tracker._held.get(task_manager, ())) if waits else ()
        original(self, task_manager, reason)
        for partition in held:
            if self.state.is_active and partition.producer not in self.parts.recoveries:
                failure = TaskFailure(kind="TaskManagerLost", message=reason)
                self.fail(failure, self.parts.executions[partition.producer])

    return [(JobLife, "lost", lost), (JobLife, "_go", keeps_waiting)]


# --- parallelism ------------------------------------------------------------------------------------


def old_key_groups() -> list[Patch]:
    original = state_assignment._keyed_shares

    def keyed_shares(uid: Any, old: Any, new: Any, handles: Any) -> Any:
        before = len(old.subtasks)
        shares = original(uid, old, structs.replace(new, parallelism=before), handles)
        return [shares[index] if index < before else () for index in range(new.parallelism)]

    return [(state_assignment, "_keyed_shares", keyed_shares)]


def above_the_maximum() -> list[Patch]:
    def as_many_as_slots(graph: Any, slots: Any) -> Any:
        if fit(graph, slots) is None:
            return None
        widths = {v.id: sum(slots.values()) for v in graph.vertices}
        return with_parallelism(graph, widths)

    return [(adaptive, "fit", as_many_as_slots)]


def never_wider() -> list[Patch]:
    return [(AdaptiveScheduling, "should_grow", lambda *_arguments: False)]


def attempts_again() -> list[Patch]:
    return [(JobRun, "next_attempts", lambda _self: {})]


def answered_too_early() -> list[Patch]:
    original = Rescaling.take

    def take(self: Any) -> None:
        original(self)
        self.done()

    return [(Rescaling, "take", take)]

"""What goes into the ResourceManager's machine and what comes out.

`unistream.core.resource_machine.ResourceMachine.handle(event) -> list[Command]`. One for a cluster,
for all its jobs. Slots are given out oldest request first; workers are asked for when open requests
exceed free slots plus slots of workers that are starting; a worker that is lost is replaced while
requests are open.
"""

from __future__ import annotations

from dataclasses import dataclass

from unistream.base.ids import JobId, TaskManagerId
from unistream.core.job_messages import SlotLease, SlotRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsWanted:
    job: JobId
    requests: tuple[SlotRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsReturned:
    """`requests` empty: everything of the job."""

    job: JobId
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRegistered:
    task_manager: TaskManagerId
    address: str
    slots: int
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHeartbeat:
    task_manager: TaskManagerId
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEnded:
    """The host says that its process has ended."""

    task_manager: TaskManagerId
    reason: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Sent regularly: look for silent workers, idle ones, and starts that took too long."""

    now_ms: int


ResourceEvent = SlotsWanted | SlotsReturned | WorkerRegistered | WorkerHeartbeat | WorkerEnded | Tick


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWorker:
    task_manager: TaskManagerId
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopWorker:
    """Idle too long, or given up: release it, then end its process."""

    task_manager: TaskManagerId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantSlots:
    job: JobId
    leases: tuple[SlotLease, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnounceLoss:
    """Tell every job that has leases there."""

    task_manager: TaskManagerId
    reason: str
    jobs: tuple[JobId, ...]


ResourceCommand = StartWorker | StopWorker | GrantSlots | AnnounceLoss

"""What goes into the ResourceManager's machine and what comes out.

`unistream.core.resource.machine.ResourceMachine.handle(event) -> list[Command]`. One for a cluster,
for all its jobs. Slots are given out oldest request first; workers are asked for when open requests
exceed free slots plus slots of workers that are starting; a worker that is lost is replaced while
requests are open.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from unistream.base.ids import JobId, TaskManagerId
from unistream.core.contract import SlotLease, SlotRequest
from unistream.model.resources import ANY_PROFILE, ResourceProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsWanted:
    """One bulk; granted as slots become free, maybe some now and the others later."""

    job: JobId
    requests: tuple[SlotRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsReturned:
    """Leases, or requests still open, that are not needed any more.

    `requests` empty: everything of the job.
    """

    job: JobId
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRegistered:
    """`profile`: of one slot; `host`: the machine that it runs on ("" = not told)."""

    task_manager: TaskManagerId
    address: str
    slots: int
    now_ms: int
    host: str = ""
    profile: ResourceProfile = ANY_PROFILE


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHeartbeat:
    task_manager: TaskManagerId
    now_ms: int


class ProbeOutcome(Enum):
    """What became of a `ProbeWorker`."""

    ANSWERED = "answered"
    SILENT = "silent"  # connected, or maybe not; there was no answer in time
    UNREACHABLE = "unreachable"  # nobody listens there, or somebody else


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProbed:
    task_manager: TaskManagerId
    outcome: ProbeOutcome
    now_ms: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEnded:
    """Its process has ended. `host`: where it ran, if that is known although it never registered. `hopeless`:
    it could not begin for a reason that stays."""

    task_manager: TaskManagerId
    reason: str
    now_ms: int
    host: str = ""
    hopeless: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    """Sent regularly: look for silent workers, idle ones, and starts that took too long."""

    now_ms: int


ResourceEvent = (
    SlotsWanted | SlotsReturned | WorkerRegistered | WorkerHeartbeat | WorkerProbed | WorkerEnded | Tick
)
JobResourceEvent = SlotsWanted | SlotsReturned
"""What jobs send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWorker:
    """`profile`: of one slot; `avoid`: hosts that it must not run on."""

    task_manager: TaskManagerId
    slots: int
    profile: ResourceProfile = ANY_PROFILE
    avoid: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StopWorker:
    """Idle too long, or given up: release it, then end its process."""

    task_manager: TaskManagerId
    reason: str


@dataclass(frozen=True, slots=True)
class ProbeWorker:
    """Ask the worker whether it is there -> `WorkerProbed`, whatever becomes of it."""

    task_manager: TaskManagerId


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantSlots:
    job: JobId
    leases: tuple[SlotLease, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsUnfulfillable:
    """No worker can serve these requests; they are dropped. `reason` names profile, group and offers.

    `permanent`: none ever will; else a worker that is big enough may yet join.
    """

    job: JobId
    requests: tuple[SlotRequest, ...]
    reason: str
    permanent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnounceLoss:
    """Tell every job that has leases there; of a worker that never came up, every job that waits for
    slots."""

    task_manager: TaskManagerId
    reason: str
    jobs: tuple[JobId, ...]


ResourceCommand = StartWorker | StopWorker | ProbeWorker | GrantSlots | SlotsUnfulfillable | AnnounceLoss


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """One worker as people see it. `blocked_ms`: for how long its free slots are still not given out."""

    task_manager: TaskManagerId
    slots: int
    free: int
    profile: ResourceProfile
    host: str
    blocked_ms: int
    jobs: tuple[JobId, ...]

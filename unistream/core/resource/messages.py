"""Events and commands of the ResourceManager's machine (`machine`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from unistream.base.ids import AllocationId, JobId, TaskManagerId
from unistream.core.contract import SlotLease, SlotRequest
from unistream.model.resources import ANY_PROFILE, ResourceProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsWanted:
    """One bulk; granted as slots become free, possibly not all at once."""

    job: JobId
    requests: tuple[SlotRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsReturned:
    """Leases, or open requests, that are not needed any more. `requests` empty: everything of the job."""

    job: JobId
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRegistered:
    """`profile`: of one slot; `host`: the machine that it runs on ("" = unknown)."""

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
    """The outcome of a `ProbeWorker`."""

    ANSWERED = "answered"
    SILENT = "silent"  # no answer in time, with or without a connection
    UNREACHABLE = "unreachable"  # nothing listens there, or another process


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProbed:
    task_manager: TaskManagerId
    outcome: ProbeOutcome
    now_ms: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEnded:
    """Its process has ended. `host`: where it ran, if known. `hopeless`: it could not start, for a permanent
    reason."""

    task_manager: TaskManagerId
    reason: str
    now_ms: int
    host: str = ""
    hopeless: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainWanted:
    """A worker is to end when its tasks have moved: it gets no more. Wanted again, it goes on.

    Attributes:
        wait: Without enough slots elsewhere its jobs wait for them; otherwise nothing is done.
        ends: It ends anyway, and at the latest `lasts_ms` later: without enough slots elsewhere, at once.
    """

    task_manager: TaskManagerId
    now_ms: int
    wait: bool = False
    ends: bool = False
    lasts_ms: int = 0


@dataclass(frozen=True, slots=True)
class Tick:
    """Sent regularly, to find silent workers, idle ones, and starts that took too long."""

    now_ms: int


ResourceEvent = (
    SlotsWanted
    | SlotsReturned
    | WorkerRegistered
    | WorkerHeartbeat
    | WorkerProbed
    | WorkerEnded
    | DrainWanted
    | Tick
)
JobResourceEvent = SlotsWanted | SlotsReturned
"""Events from jobs, which carry no time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWorker:
    """`profile`: of one slot; `avoid`: hosts that it must not run on; `job`: whose request is the first that
    it can serve."""

    task_manager: TaskManagerId
    slots: int
    job: JobId
    profile: ResourceProfile = ANY_PROFILE
    avoid: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StopWorker:
    """Idle too long, or given up: releases it, then ends its process."""

    task_manager: TaskManagerId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTasks:
    """A worker is drained: notifies it, and the jobs that have leases there."""

    task_manager: TaskManagerId
    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseDrain:
    """Nothing was done; `reason` is for people."""

    task_manager: TaskManagerId
    reason: str


@dataclass(frozen=True, slots=True)
class ProbeWorker:
    """Checks that the worker answers -> always `WorkerProbed`."""

    task_manager: TaskManagerId


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantSlots:
    job: JobId
    leases: tuple[SlotLease, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseSlots:
    """No worker can serve these requests; they are dropped. `reason` names profile, group and offers.
    `permanent`: otherwise a worker that is big enough may still register."""

    job: JobId
    requests: tuple[SlotRequest, ...]
    reason: str
    permanent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnounceLoss:
    """Notifies all jobs that have leases there; if the worker never registered, all jobs that wait for
    slots."""

    task_manager: TaskManagerId
    reason: str
    jobs: tuple[JobId, ...]


ResourceCommand = (
    StartWorker | StopWorker | ProbeWorker | GrantSlots | RefuseSlots | AnnounceLoss | MoveTasks | RefuseDrain
)


class SlotView(NamedTuple):
    """A slot that a job has."""

    allocation: AllocationId
    job: JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedHost:
    """A host that has lost workers, for people.

    Attributes:
        left_ms: For how much longer it is avoided.
        shut: Its slots are not granted; otherwise they are, since no other host has workers.
        losses: Why its workers were lost, oldest first.
    """

    host: str
    left_ms: int
    shut: bool
    losses: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """One worker, for people. `blocked_ms`: for how long its free slots are still not granted; `draining`: it
    ends when its tasks have moved."""

    task_manager: TaskManagerId
    slots: int
    free: int
    profile: ResourceProfile
    host: str
    blocked_ms: int
    jobs: tuple[JobId, ...]
    leased: tuple[SlotView, ...] = ()
    draining: bool = False

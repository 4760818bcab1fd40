"""What goes into a job's machine: one half of the contract between `core` and `master`.

The shell (`unistream.master.job_master`) turns everything that happens into an `Event`, gives it to
`unistream.core.job.machine.JobMachine.handle`, and performs the returned commands (`commands`) in order. One
that fails comes back as an event. Task reports (`ToJobManager` messages about an attempt) are events
as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from unistream.base.ids import AllocationId, CheckpointId, TaskManagerId, VertexId
from unistream.model.elements import SavepointFormat, SnapshotKind
from unistream.model.messages import (
    CheckpointAcked,
    CheckpointDeclined,
    EndOfDataReached,
    Split,
    SplitRequested,
    StoredInputsRead,
    TaskFailure,
    TaskStateChanged,
)
from unistream.model.resources import ANY_PROFILE, ResourceProfile


class TimerKind(Enum):
    RESTART_DELAY = "restart delay"  # `id` = recovery
    SLOT_REQUEST = "slot request"  # `id` = bulk, -1: of a rescaling
    SLOT_IDLE = "slot idle"
    RESOURCES = "resources"  # of the adaptive scheduler: `id` 0 wait, 1 stabilization, 2 cool-down
    CHECKPOINT_INTERVAL = "checkpoint interval"  # `id` 0: the interval, 1: the least pause
    CHECKPOINT_TIMEOUT = "checkpoint timeout"  # `id` = checkpoint id
    CANCELLATION = "cancellation"  # tasks that do not end: their workers are released
    UNDELIVERED = "undelivered"  # `id` = token: the worker may be lost, which is on its way then
    SPLIT_DISCOVERY = "split discovery"  # `id` = place of the source among those of the graph
    RELEASE = "release"  # `id` = token: stored results that a worker was told to release, and did not answer


@dataclass(frozen=True, slots=True)
class Timer:
    """One timer at a time with the same (kind, id); setting it again replaces it."""

    kind: TimerKind
    id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRequest:
    """One slot for one slice of a slot sharing group. `key`: unique within the job, e.g. "default/0".
    `replaces`: the request whose lease was lost with its worker; this one is as old as that."""

    key: str
    group: str
    profile: ResourceProfile = ANY_PROFILE
    replaces: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLease:
    """A slot that the ResourceManager has given to a request. `address`: Flight location of its worker.
    `profile`: what the slot has for certain. `strict`: it has no more; else what the profile does not tell is
    no limit (see `slot_matching.serves`)."""

    request: str
    allocation: AllocationId
    task_manager: TaskManagerId
    address: str
    profile: ResourceProfile = ANY_PROFILE
    strict: bool = True


# --- events ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """First event: ask for slots, discover splits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsGranted:
    """Leases for requests of `RequestSlots`; maybe some now and the others later."""

    leases: tuple[SlotLease, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsUnfulfillable:
    """No worker can serve these requests (their keys); they are not open any more. `reason` is for people;
    `permanent`: asking again cannot help."""

    requests: tuple[str, ...]
    reason: str
    permanent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskManagerLost:
    """Its process is gone or given up; all its leases and attempts are void."""

    task_manager: TaskManagerId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """A `Send` with this token was acknowledged."""

    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Undelivered:
    """A `Send` with this token was refused, or the peer did not answer (then: unknown).

    `refused`: the peer answered `Refused`, so it is certain that it did not act.
    """

    token: int
    reason: str
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitsDiscovered:
    """`number`: of the `DiscoverSplits` that this answers. `origin`: see `KnownSplits`."""

    vertex: VertexId
    splits: tuple[Split, ...]
    number: int
    origin: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryFailed:
    """`number`: of the `DiscoverSplits` that this answers."""

    vertex: VertexId
    failure: TaskFailure
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryReady:
    """Answer to `PrepareDirectory`. `timestamp_ms`: wall clock now, the snapshot's time of trigger."""

    checkpoint_id: CheckpointId
    directory: str
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryFailed:
    checkpoint_id: CheckpointId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestDurable:
    """The manifest lies on the storage: the snapshot is complete and may be committed."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFailed:
    """`unknown`: it may be there; nothing of it may be deleted. `fenced`: another leader wrote it."""

    checkpoint_id: CheckpointId
    reason: str
    unknown: bool = False
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class TimerFired:
    timer: Timer


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequest:
    """A request for a savepoint (SAVEPOINT), a stop (SUSPEND), a drain (TERMINATE) or a checkpoint now
    (CHECKPOINT). Answered by `AnswerRequest` with the same id when the snapshot is durable (a stop: when the
    job has ended).

    Attributes:
        id: Given by the JobMaster; empty if nobody waits for an answer.
        target: Folder for the savepoint's directory.
        format: Of a savepoint, and of both that a drain takes.
        full: The checkpoint refers to no file of another.
        aligned: Barriers of the checkpoint keep their places, so that no row is in flight.
        on_done: Called with (path, error) instead of an `AnswerRequest`: for requests of the job itself.
    """

    kind: SnapshotKind
    id: str = ""
    target: str | None = None
    format: SavepointFormat = SavepointFormat.CANONICAL
    full: bool = False
    aligned: bool = False
    on_done: Callable[[str | None, str | None], None] | None = field(default=None, compare=False)

    @property
    def is_answered(self) -> bool:
        """Whether somebody waits for the answer."""
        return bool(self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleRequested:
    """A user wants these vertices at another parallelism (the adaptive scheduler: at most that one).
    Answered by `AnswerRequest` when the job runs so."""

    request: str
    parallelism: Mapping[VertexId, int]


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """End the job without a snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendRequested:
    """The cluster ends, and the tasks of the job with it; its snapshots stay. `reason`: for people."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipLost:
    """This leader steps down: the last event. Requests that are open are refused, and the job is recorded as
    SUSPENDED; there is no `JobEnded`, because it is the end under this leader only. Nothing is sent to
    workers, given back or deleted: tasks, slots and snapshots are the next leader's. `reason`: for people."""

    reason: str


Event = (
    Started
    | SlotsGranted
    | SlotsUnfulfillable
    | TaskManagerLost
    | Delivered
    | Undelivered
    | SplitsDiscovered
    | DiscoveryFailed
    | DirectoryReady
    | DirectoryFailed
    | ManifestDurable
    | ManifestFailed
    | TimerFired
    | SnapshotRequest
    | RescaleRequested
    | CancelRequested
    | SuspendRequested
    | LeadershipLost
    | TaskStateChanged
    | CheckpointAcked
    | CheckpointDeclined
    | EndOfDataReached
    | StoredInputsRead
    | SplitRequested
)

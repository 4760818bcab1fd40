"""The input of a job's machine.

The shell (`unistream.master.job.job_master`) turns everything that happens into an `Event`, passes it to
`unistream.core.job.machine.JobMachine.handle`, and performs the returned commands (`commands`) in order. Task
reports (`ToJobManager` messages about an attempt) are events, too, and for a job that an engine runs
(`BoundedJobMachine`) the reports of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from unistream.base.ids import AllocationId, CheckpointId, TaskManagerId, VertexId
from unistream.model import messages as msg
from unistream.model.bounded import EngineReport
from unistream.model.resources import ANY_PROFILE, ResourceProfile
from unistream.model.snapshot_kind import SavepointFormat, SnapshotKind


class TimerKind(Enum):
    RESTART_DELAY = "restart delay"  # `id` = recovery
    SLOT_REQUEST = "slot request"  # `id` = bulk, -1: of a rescaling
    SLOT_IDLE = "slot idle"
    RESOURCES = "resources"  # of the adaptive scheduler: `id` 0 wait, 1 stabilization, 2 cool-down
    CHECKPOINT_INTERVAL = "checkpoint interval"  # `id` 0: the interval, 1: the minimum pause
    CHECKPOINT_TIMEOUT = "checkpoint timeout"  # `id` = checkpoint id
    CANCELLATION = "cancellation"  # of tasks; then their workers are released
    UNDELIVERED = "undelivered"  # `id` = token: the report of a lost worker may be on its way
    SPLIT_DISCOVERY = "split discovery"  # `id` = place of the source among those of the graph
    RELEASE = "release"  # `id` = token: a release of stored results without an answer


@dataclass(frozen=True, slots=True)
class Timer:
    """Setting a timer with the same (kind, id) again replaces it."""

    kind: TimerKind
    id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRequest:
    """One slot for one slice of a slot sharing group. `key`: unique within the job, e.g. "default/0".
    `replaces`: the request whose lease was lost with its worker, and whose age this one has; or whose
    worker is drained."""

    key: str
    group: str
    profile: ResourceProfile = ANY_PROFILE
    replaces: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLease:
    """A slot granted by the ResourceManager. `address`: Flight location of its worker. `profile`: what the
    slot is certain to have. `strict`: see `slot_matching.serves`."""

    request: str
    allocation: AllocationId
    task_manager: TaskManagerId
    address: str
    profile: ResourceProfile = ANY_PROFILE
    strict: bool = True


# --- events ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The first event of a machine: the job starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsGranted:
    """Leases for requests of `RequestSlots`, possibly not all at once."""

    leases: tuple[SlotLease, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsUnfulfillable:
    """No worker can serve these requests (their keys); they are not open any more. `permanent`: requesting
    them again cannot help."""

    requests: tuple[str, ...]
    reason: str
    permanent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskManagerLost:
    """Its process has ended or was given up; all its leases and attempts are void."""

    task_manager: TaskManagerId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskManagerDraining:
    """It gets no more tasks, and ends when the job has returned all its leases there."""

    task_manager: TaskManagerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """A `Send` with this token was acknowledged."""

    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Undelivered:
    """A `Send` with this token was `refused`, so that the peer certainly did not act, or was not answered
    (outcome unknown)."""

    token: int
    reason: str
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitsDiscovered:
    """`number`: as in `DiscoverSplits`. `origin`, `position`, `origins`: see `FoundSplits`."""

    vertex: VertexId
    splits: tuple[msg.Split, ...]
    number: int
    origin: str = ""
    position: str = ""
    origins: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryFailed:
    """`number`: as in `DiscoverSplits`."""

    vertex: VertexId
    failure: msg.TaskFailure
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryReady:
    """Answer to `PrepareDirectory`. `timestamp_ms`: wall clock, the trigger time of the snapshot."""

    checkpoint_id: CheckpointId
    directory: str
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryFailed:
    checkpoint_id: CheckpointId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestDurable:
    """The manifest is stored: the snapshot is complete and may be committed."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFailed:
    """`unknown`: it may exist; nothing of it may be deleted. `fenced`: another leader wrote it."""

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
    """A user requests another parallelism of these vertices (with the adaptive scheduler: an upper bound).
    Answered by `AnswerRequest` when the job runs at it."""

    request: str
    parallelism: Mapping[VertexId, int]


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """End the job without a snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendRequested:
    """The cluster shuts down, and the tasks of the job end; its snapshots are kept. `goes_on`: the command
    that starts the cluster again, and with it the job; "": there is none."""

    reason: str
    goes_on: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipLost:
    """This leader steps down: the last event. Open requests are refused, and the job is recorded as
    SUSPENDED, without `JobEnded`. Nothing is sent to workers, released or deleted: the next leader takes over
    tasks, slots and snapshots."""

    reason: str


Event = (
    Started
    | SlotsGranted
    | SlotsUnfulfillable
    | TaskManagerLost
    | TaskManagerDraining
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
    | msg.TaskStateChanged
    | msg.CheckpointAcked
    | msg.CheckpointDeclined
    | msg.EndOfDataReached
    | msg.StoredInputsRead
    | msg.SplitRequested
    | EngineReport
)

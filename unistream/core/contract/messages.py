"""What goes into a job's machine and what comes out: the contract between `core` and `master`.

The shell (`unistream.master.job_master`) turns everything that happens into an `Event`, gives it to
`unistream.core.job.machine.JobMachine.handle`, and performs the returned commands in order. A command
that fails comes back as an event. Task reports (`ToJobManager` messages about an attempt) are events
as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from unistream.base.ids import AllocationId, AttemptId, CheckpointId, TaskManagerId, VertexId
from unistream.model.elements import SavepointFormat, SnapshotKind
from unistream.model.graph import JobGraph, SourceInfo
from unistream.model.messages import (
    CheckpointAcked,
    CheckpointDeclined,
    EndOfDataReached,
    Split,
    SplitRequested,
    StoredInputsRead,
    TaskFailure,
    TaskStateChanged,
    ToTaskManager,
)
from unistream.model.resources import ANY_PROFILE, ResourceProfile
from unistream.model.snapshot import Manifest
from unistream.model.splits import KnownSplits


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
class SnapshotRequested:
    """A user asks for a savepoint (SAVEPOINT), a stop (SUSPEND) or a drain (TERMINATE), or for a
    checkpoint now (CHECKPOINT). Answered by `AnswerRequest` with the same `request`.
    `format`: of a savepoint, and of both that a drain takes. `full`: of a checkpoint, which is to refer to no
    file of another."""

    request: str
    kind: SnapshotKind
    target: str | None = None
    format: SavepointFormat = SavepointFormat.CANONICAL
    full: bool = False


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
    | SnapshotRequested
    | RescaleRequested
    | CancelRequested
    | SuspendRequested
    | TaskStateChanged
    | CheckpointAcked
    | CheckpointDeclined
    | EndOfDataReached
    | StoredInputsRead
    | SplitRequested
)

# --- commands -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSlots:
    """Give these slots to the job, as they come. Repeating a request with the same key is one request."""

    requests: tuple[SlotRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseSlots:
    """The job does not need these leases (or requests still open) any more. Empty = all of the job."""

    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """One message to one worker; messages to the same worker are sent one after the other, in order.
    With a `token` its fate comes back as `Delivered` or `Undelivered`."""

    task_manager: TaskManagerId
    message: ToTaskManager
    token: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoverSplits:
    """List the splits of a source, in the background -> `SplitsDiscovered` or `DiscoveryFailed`.

    `known`: what was found before; what is not in it has come since. None: this is the first time, and the
    positions of a first start apply.
    """

    vertex: VertexId
    source: SourceInfo
    known: KnownSplits | None
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    timer: Timer
    delay_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    timer: Timer


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareDirectory:
    """Name a directory for a snapshot -> `DirectoryReady`."""

    checkpoint_id: CheckpointId
    kind: SnapshotKind
    target: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteManifest:
    """Create `_metadata`, if absent -> `ManifestDurable` or `ManifestFailed`."""

    directory: str
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Sweep:
    """Look for files in `shared` that no checkpoint names: tasks may have died before they told of them.

    Attributes:
        beside: A directory beside which that folder lies; it need not exist any more.
        before: Leave alone what was stored for this checkpoint or a newer one. None: nothing is stored now.
    """

    beside: str
    before: CheckpointId | None = None


@dataclass(frozen=True, slots=True)
class DiscardSnapshot:
    """Remove a snapshot that nothing needs: superseded, or aborted before its manifest was tried.

    Attributes:
        shared: Files of the job's folder `shared` that go after it. Alone (`directory` ""): of an
            acknowledgement that came too late.
        sweep: After it, or alone, what else nobody names.
    """

    directory: str
    shared: tuple[str, ...] = ()
    sweep: Sweep | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordJobState:
    state: str
    restarts: int
    failure: TaskFailure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordAttempt:
    attempt: AttemptId
    vertex_name: str
    state: str
    task_manager: TaskManagerId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordException:
    """One failure, for the history.

    Attributes:
        is_root: It led to a restart, or to the end, of its own; False: it came while one was on its way.
        suppressed: Why there is no restart after it (`FailureDecision.error`); None if there is one.
    """

    failure: TaskFailure
    attempt: AttemptId | None
    task_manager: TaskManagerId | None
    is_root: bool = True
    suppressed: str | None = None


@dataclass(frozen=True, slots=True)
class RecordGraph:
    """The job has another parallelism: what is recorded from now on is of this graph."""

    graph: JobGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCheckpoint:
    """`state`: triggered, completed or failed (with `reason`)."""

    checkpoint_id: CheckpointId
    kind: SnapshotKind
    state: str
    state_bytes: int = 0
    path: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRequest:
    """The answer to `SnapshotRequested` (for a stop only after every commit was acknowledged and the job has
    ended) or to `RescaleRequested` (`path` is empty then). Exactly one of `path` and `error` is set."""

    request: str
    path: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded:
    """Last command: FINISHED, CANCELED, FAILED or SUSPENDED (its `failure` says how the job goes on)."""

    state: str
    failure: TaskFailure | None = None


Command = (
    RequestSlots
    | ReleaseSlots
    | Send
    | DiscoverSplits
    | SetTimer
    | CancelTimer
    | PrepareDirectory
    | WriteManifest
    | DiscardSnapshot
    | RecordJobState
    | RecordAttempt
    | RecordException
    | RecordGraph
    | RecordCheckpoint
    | AnswerRequest
    | JobEnded
)

"""What comes out of a job's machine: commands, performed in order. One that fails comes back as an event."""

from __future__ import annotations

from dataclasses import dataclass

from unistream.base.ids import AttemptId, CheckpointId, TaskManagerId, VertexId
from unistream.core.contract.messages import SlotRequest, Timer
from unistream.model.checkpoint_figures import CheckpointFigures
from unistream.model.elements import SnapshotKind
from unistream.model.graph import JobGraph, SourceInfo
from unistream.model.messages import TaskFailure, ToTaskManager
from unistream.model.snapshot import Manifest
from unistream.model.splits import KnownSplits


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
    With a `token` its outcome comes back as `Delivered` or `Undelivered`."""

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


@dataclass(frozen=True, slots=True)
class RecordCheckpoint:
    """A snapshot was triggered, completed or failed."""

    record: CheckpointFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRequest:
    """The answer to `SnapshotRequest` (for a stop only after every commit was acknowledged and the job has
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

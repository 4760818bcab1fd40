"""The output of a job's machine: commands, performed in order. A failure of one is reported as an event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from unistream.base.ids import AttemptId, CheckpointId, TaskManagerId, VertexId
from unistream.core.contract.messages import SlotRequest, Timer
from unistream.model.checkpoint_figures import CheckpointFigures
from unistream.model.graph import JobGraph, SourceInfo
from unistream.model.messages import Split, TaskFailure, ToTaskManager
from unistream.model.snapshot import Manifest
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.splits import KnownSplits
from unistream.model.stored_rows import StoredRows


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSlots:
    """Grant these slots to the job as they become free. The same key again is the same request."""

    requests: tuple[SlotRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseSlots:
    """The job does not need these leases (or open requests) any more. Empty = all of the job."""

    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """One message to one worker; messages to the same worker are sent in order. With a `token` its outcome is
    reported as `Delivered` or `Undelivered`."""

    task_manager: TaskManagerId
    message: ToTaskManager
    token: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoverSplits:
    """List the splits of a source, in the background -> `SplitsDiscovered` or `DiscoveryFailed`. `known`:
    found before; None: this is the first discovery, and the positions of a first start apply."""

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
    """Create `_metadata`, if absent -> `ManifestDurable` or `ManifestFailed`.

    Attributes:
        tidies: Then remove what other bootstraps, and attempts that have lost, left in the directory.
    """

    directory: str
    manifest: Manifest
    tidies: bool = False


@dataclass(frozen=True, slots=True)
class SweepSharedFiles:
    """Remove files in `shared` that no checkpoint names: tasks may have died before they reported them.

    Attributes:
        next_to: A directory next to that folder; it need not exist any more.
        before: Keep what was stored for this checkpoint or a newer one. None: nothing is being stored.
    """

    next_to: str
    before: CheckpointId | None = None


@dataclass(frozen=True, slots=True)
class DiscardSnapshot:
    """Remove a snapshot that nothing needs: superseded, or aborted before its manifest was tried.

    Attributes:
        shared: Files of the job's folder `shared` to remove after it. Alone (`directory` ""): of a late
            acknowledgement.
        sweep: Performed after that, or alone.
    """

    directory: str
    shared: tuple[str, ...] = ()
    sweep: SweepSharedFiles | None = None


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
    """One failure, for the history. `is_root`, `suppressed`: see `FailureDecision.is_new_attempt` and
    `.error`."""

    failure: TaskFailure
    attempt: AttemptId | None
    task_manager: TaskManagerId | None
    is_root: bool = True
    suppressed: str | None = None


@dataclass(frozen=True, slots=True)
class RecordGraph:
    """The parallelism has changed: later records belong to this graph."""

    graph: JobGraph


@dataclass(frozen=True, slots=True)
class RecordCheckpoint:
    """A snapshot was triggered, completed or failed."""

    record: CheckpointFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRequest:
    """The answer to `SnapshotRequest` (to a stop: after every commit was acknowledged and the job has
    ended) or to `RescaleRequested` (`path` is empty then). Exactly one of `path` and `error` is set."""

    request: str
    path: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded:
    """Last command: FINISHED, CANCELED, FAILED or SUSPENDED (`failure` says how to resume the job)."""

    state: str
    failure: TaskFailure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStages:
    """The engine runs all stages of the job -> `StagesRan` or `RunFailed`; `AttemptsChanged` meanwhile.

    Attributes:
        first_attempt: Number of each subtask's first attempt in this run.
        splits: All splits of each source.
        graph: Of a job with a bounded part, which is what runs; None: the job's own, and all of it runs.
    """

    run: int
    first_attempt: int
    splits: Mapping[VertexId, tuple[Split, ...]]
    graph: JobGraph | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitStaged:
    """The engine commits what a run has staged -> `StagedCommitted` or `RunFailed`."""

    run: int
    first_attempt: int
    splits: Mapping[VertexId, tuple[Split, ...]]
    staged: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCommitters:
    """The committers of a bootstrap take what a run has staged into their state -> `CommittersStored` or
    `RunFailed`. Fields as of `CommitStaged`."""

    run: int
    first_attempt: int
    splits: Mapping[VertexId, tuple[Split, ...]]
    staged: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class CancelRun:
    """The engine ends what runs -> `RunFailed`, or what had just happened otherwise."""


@dataclass(frozen=True, slots=True)
class KeepStored:
    """The order to keep `rows` of what the engine has stored for the job: all other files are removed."""

    rows: tuple[StoredRows, ...]


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
    | RunStages
    | StoreCommitters
    | CommitStaged
    | CancelRun
    | KeepStored
    | AnswerRequest
    | JobEnded
)

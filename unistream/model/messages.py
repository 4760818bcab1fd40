"""Control messages between a JobManager and its TaskManagers: closed, versioned, never pickled.

A request (Flight DoAction) holds one, or many in a `Bundle`; each is answered, most with `Ack` or `Refused`.
Delivery is at least once; every message names its attempt or TaskManager, and a receiver ignores those of
others. Messages from one sender to one receiver arrive in the order in which they were answered.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from unistream.base.ids import (
    AttemptId,
    CheckpointId,
    EdgeId,
    JobId,
    LeaderEpoch,
    OperatorUid,
    PartitionId,
    TaskManagerId,
)
from unistream.base.limits import BUNDLE_MESSAGES_MAX, MAX_WATERMARK
from unistream.base.releases import SILENT
from unistream.model.deployment import TaskDeployment
from unistream.model.positions import SourcePositions
from unistream.model.resources import MachineResources, ResourceProfile
from unistream.model.snapshot import TaskSnapshot
from unistream.model.snapshot_kind import SavepointFormat, SnapshotKind
from unistream.model.split import Split as Split  # noqa: PLC0414  all messages are found here

PROTOCOL_VERSION = 1


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base: the class name is the tag on the wire."""


class DeployTask(_Message, frozen=True, kw_only=True):
    deployment: TaskDeployment


class CancelTask(_Message, frozen=True, kw_only=True):
    attempt: AttemptId


class SnapshotPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot and the fsspec URL of its directory."""

    checkpoint_id: CheckpointId
    directory: str


class TriggerCheckpoint(_Message, frozen=True, kw_only=True):
    """Starts a snapshot, whose state is stored below `directory` (fsspec URL). `before`: for a drain, the
    resumable savepoint at the same position, taken before the end of data. `format`: of both savepoints.
    `full`: the checkpoint refers to no file of another. `aligned`: its barriers overtake nothing, whatever is
    configured."""

    attempt: AttemptId
    checkpoint_id: CheckpointId
    timestamp_ms: int
    kind: SnapshotKind
    directory: str
    before: SnapshotPlace | None = None
    format: SavepointFormat = SavepointFormat.CANONICAL
    full: bool = False
    aligned: bool = False


class CheckpointCompleted(_Message, frozen=True, kw_only=True):
    """The manifest of `checkpoint_id` is durable, written by the leader of `epoch`: commit what it lists.
    `positions`: see `Manifest.positions`; `snapshot`: see `CommitPermit`."""

    attempt: AttemptId
    checkpoint_id: CheckpointId
    epoch: LeaderEpoch
    positions: dict[OperatorUid, tuple[SourcePositions, ...]] = {}
    snapshot: str = ""


class CheckpointAborted(_Message, frozen=True, kw_only=True):
    attempt: AttemptId
    checkpoint_id: CheckpointId
    latest_completed: CheckpointId | None


class AssignSplits(_Message, frozen=True, kw_only=True):
    """Splits that a subtask reads from now on. `no_more`: none follows for it; a bounded reader ends when
    these are read. `watermark_limit`: the most that its watermark may be (ms) before the next message.
    `phase`: all of this is about that one (`SourceInfo.phases`), and the former is over. `newest`: the
    greatest event time (ms) in the former one, if the readers were to find it."""

    attempt: AttemptId
    splits: tuple[Split, ...]
    no_more: bool = False
    watermark_limit: int = MAX_WATERMARK
    phase: int = 0
    newest: int | None = None


class ReleasePartitions(_Message, frozen=True, kw_only=True):
    """Delete blocking partitions (attempt, edge) that no task will read; unknown ones are ignored."""

    job: JobId
    partitions: tuple[tuple[AttemptId, EdgeId], ...]


class ReleaseTaskManager(_Message, frozen=True, kw_only=True):
    """Cancel all tasks and exit. `rejoin`: a standalone worker registers again instead."""

    task_manager: TaskManagerId
    reason: str
    rejoin: bool = False


class DrainTaskManager(_Message, frozen=True, kw_only=True):
    """Its tasks move, and it is released when they have: if it loses its master, it ends."""

    task_manager: TaskManagerId


class Ping(_Message, frozen=True, kw_only=True):
    """The heartbeat of the master; refused by any other TaskManager."""

    task_manager: TaskManagerId


class RegisterTaskManager(_Message, frozen=True, kw_only=True):
    """First message of a TaskManager. `address`: Flight location of its server; `profile`: of one slot;
    `memory`: parts of its memory plan by name, bytes; `hardware`: None: a worker of an older version;
    `version`, `python`: what is installed there, see `base.releases`."""

    task_manager: TaskManagerId
    address: str
    slots: int
    pid: int
    host: str
    profile: ResourceProfile = ResourceProfile()
    memory: dict[str, int] = {}
    hardware: MachineResources | None = None
    protocol: int = PROTOCOL_VERSION
    version: str = SILENT
    python: str = ""


class TaskMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of one attempt since its start, and its queues now.

    Attributes:
        busy_per_s, backpressured_per_s, idle_per_s: ms per second, since the report before.
        records_in_per_s: Records in a second, since then; None: it is the first report.
        watermark: ms, or None.
        in_queue_length, out_queue_length: Queued batches (and events of other processes).
        in_pool_used, out_pool_used: Queued bytes (in: from other processes); `_size`: their limits.
        user: Named counters.
    """

    records_in: int = 0
    records_out: int = 0
    busy_ms: int = 0
    backpressured_ms: int = 0
    idle_ms: int = 0
    busy_per_s: int = 0
    backpressured_per_s: int = 0
    idle_per_s: int = 0
    records_in_per_s: int | None = None
    watermark: int | None = None
    in_queue_length: int = 0
    out_queue_length: int = 0
    in_pool_used: int = 0
    in_pool_size: int = 0
    out_pool_used: int = 0
    out_pool_size: int = 0
    user: dict[str, int] = {}


class Heartbeat(_Message, frozen=True, kw_only=True):
    """Refused when the JobManager does not know this TaskManager, or considers it lost: it must exit.
    `stored`: jobs with stored results here; `JobsOver` says which of them have ended. `used`: bytes of the
    parts of its memory plan, as far as they are known. `leaves_in_ms`: it ends by itself then, and its tasks
    are to move before; None: it stays."""

    task_manager: TaskManagerId
    leaves_in_ms: int | None = None
    metrics: tuple[tuple[AttemptId, TaskMetrics], ...] = ()
    stored: tuple[JobId, ...] = ()
    used: dict[str, int] = {}


class TaskFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a task failed. `recoverable` False: restarting cannot help (a configuration error, or
    `SuppressRestarts`). `lost_partition`: it could not be read (Flink's PartitionException), so its producer
    runs again. `user_traceback`: what the user's code raised, with frames of that code alone; empty: it has
    raised nothing."""

    kind: str
    message: str
    traceback: str = ""
    user_traceback: str = ""
    recoverable: bool = True
    lost_partition: PartitionId | None = None


class ReportedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition of type BLOCKING_REPORTED. `contents`: encoded rows, one item for each subpartition."""

    edge: EdgeId
    contents: tuple[bytes, ...]

    def __repr__(self) -> str:
        return f"ReportedPartition({self.edge}, {sum(map(len, self.contents))} B)"


class TaskStateChanged(_Message, frozen=True, kw_only=True):
    """`state`: name of an `ExecutionState` that a worker reports: INITIALIZING, RUNNING, FINISHED, CANCELED,
    FAILED. `metrics`: the last ones of a task that has ended: the next heartbeat may be too late.
    `committables`: with FINISHED, the partitions that the master keeps."""

    attempt: AttemptId
    state: str
    failure: TaskFailure | None = None
    metrics: TaskMetrics | None = None
    committables: tuple[ReportedPartition, ...] = ()


class CheckpointAcked(_Message, frozen=True, kw_only=True):
    """The subtask's state is durable. Durations in ms, sizes in bytes (`model.checkpoint_figures`)."""

    attempt: AttemptId
    checkpoint_id: CheckpointId
    snapshot: TaskSnapshot
    sync_ms: int = 0
    async_ms: int = 0
    start_delay_ms: int = 0
    alignment_ms: int = 0
    processed_bytes: int = 0
    persisted_bytes: int = 0
    state_bytes: int = 0
    new_bytes: int = 0
    unaligned: bool = False


class CheckpointDeclined(_Message, frozen=True, kw_only=True):
    attempt: AttemptId
    checkpoint_id: CheckpointId
    reason: str


class EndOfDataReached(_Message, frozen=True, kw_only=True):
    """All operators of the task have finished their logic; it now waits for its last checkpoint."""

    attempt: AttemptId


class StoredInputsRead(_Message, frozen=True, kw_only=True):
    """The task has read its stored inputs to their end: from now on it may take part in checkpoints."""

    attempt: AttemptId


class SplitRequested(_Message, frozen=True, kw_only=True):
    """A pulling source has room for one more split of `phase`; all of the former one is sent on, whose
    greatest event time here was `newest`."""

    attempt: AttemptId
    phase: int = 0
    newest: int | None = None


class CommitReported(_Message, frozen=True, kw_only=True):
    """A checkpoint's output of a sink is visible; for the catalogue, not for recovery. `already`: another
    attempt has committed it; `table_rows`, `watermark`: see `port.operator.ReportCommit`."""

    attempt: AttemptId
    sink_uid: str
    checkpoint_id: CheckpointId
    rows: int
    table_version: int | None = None
    table_rows: int | None = None
    already: bool = False
    watermark: int | None = None


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """Logged by a function of the user; `level` as Python names it."""

    at_ms: int
    level: str
    logger: str
    message: str


class LogReported(_Message, frozen=True, kw_only=True):
    """Lines of one attempt, for people. `dropped`: how many came behind them, which were too many; `number`:
    of the report, from 1, since it may come twice."""

    attempt: AttemptId
    number: int
    lines: tuple[LogLine, ...]
    dropped: int = 0


class FetchArtifact(_Message, frozen=True, kw_only=True):
    """Answered with `Artifact`."""

    job: JobId
    sha256: str


class Ack(_Message, frozen=True, kw_only=True):
    """Received; it takes effect."""


class Registered(_Message, frozen=True, kw_only=True):
    """Answers a registration: the worker belongs to the cluster and uses its heartbeat settings."""

    heartbeat_interval_ms: int
    heartbeat_timeout_ms: int


class JobsOver(_Message, frozen=True, kw_only=True):
    """Answers a heartbeat: these of its `stored` jobs have ended, and their results are deleted."""

    jobs: tuple[JobId, ...]


class Refused(_Message, frozen=True, kw_only=True):
    """It has no effect, and sending it again will not help. `fenced`: the master has replaced the sender,
    which must end at once."""

    reason: str
    fenced: bool = False


class Artifact(_Message, frozen=True, kw_only=True):
    content: bytes


class Bundle(_Message, frozen=True, kw_only=True):
    """Messages for one receiver in their order, each in its wire form; see `unistream.model.bundle`."""

    messages: Annotated[tuple[msgspec.Raw, ...], msgspec.Meta(max_length=BUNDLE_MESSAGES_MAX)]


class Broken(_Message, frozen=True, kw_only=True):
    """One message of a bundle could not be read, or its handler failed."""

    reason: str


class Answers(_Message, frozen=True, kw_only=True):
    """The answers to the messages of a bundle, in their order."""

    answers: tuple[Ack | Refused | Broken, ...]


ToTaskManager = (
    DeployTask
    | CancelTask
    | TriggerCheckpoint
    | CheckpointCompleted
    | CheckpointAborted
    | AssignSplits
    | ReleasePartitions
    | ReleaseTaskManager
    | DrainTaskManager
    | Ping
)
TaskReport = (
    TaskStateChanged
    | CheckpointAcked
    | CheckpointDeclined
    | EndOfDataReached
    | StoredInputsRead
    | SplitRequested
    | CommitReported
    | LogReported
)
"""What a worker reports about an attempt; the only messages to a JobManager in bundles."""
ToJobManager = RegisterTaskManager | Heartbeat | TaskReport | FetchArtifact
Answer = Ack | Registered | JobsOver | Refused | Artifact | Answers
Request = ToTaskManager | ToJobManager | Bundle

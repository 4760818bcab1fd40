"""Control messages between a JobManager and its TaskManagers: closed, versioned, never pickled.

Each is answered with `Ack` or `Refused`; a request (Flight DoAction) holds one, or many in a `Bundle`.
Delivery is at least once; every message names the attempt or TaskManager it is for, and a receiver ignores
what is not its own. Messages from one sender to one receiver arrive in the order in which they were answered.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from unistream.base.ids import (
    AllocationId,
    AttemptId,
    CheckpointId,
    EdgeId,
    JobId,
    LeaderEpoch,
    LineageId,
    PartitionId,
    TaskManagerId,
)
from unistream.base.limits import BUNDLE_MESSAGES_MAX
from unistream.base.secrets import redacted_repr
from unistream.model.elements import SavepointFormat, SnapshotKind
from unistream.model.graph import JobVertex, Ship
from unistream.model.partition_type import PartitionType
from unistream.model.resources import ResourceProfile
from unistream.model.snapshot import TaskRestore, TaskSnapshot

PROTOCOL_VERSION = 1


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base: the class name is the tag on the wire."""


# --- deployment ---------------------------------------------------------------------------------


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a source (a Kafka partition, a row group). `data` belongs to the connector and holds
    the position to start from; a reader's snapshot is a list of splits with newer positions."""

    id: str
    data: bytes


class ChannelDescriptor(msgspec.Struct, frozen=True, kw_only=True):
    """One subpartition that a consumer reads: `address` is the Flight location of its TaskManager.

    Attributes:
        stored: It was written in full before the consumer was deployed.
        ended: It is stored, and all its rows are in the state that the consumer is restored from: nothing is
            left of it but its end. Nobody is asked for it: `address` may be empty, when the producer starts
            later than the consumer.
    """

    producer: AttemptId
    edge: EdgeId
    subpartition: int
    task_manager: TaskManagerId
    address: str
    stored: bool = False
    ended: bool = False


class GateDescriptor(msgspec.Struct, frozen=True, kw_only=True):
    """All channels that feed one logical input."""

    input_index: int
    channels: tuple[ChannelDescriptor, ...]


class PartitionDescriptor(msgspec.Struct, frozen=True, kw_only=True):
    """A result partition that this task produces, one subpartition per consumer subtask it serves.

    Attributes:
        consumers: Indices of the consumer subtasks, in subpartition order.
        consumer_parallelism, consumer_max_parallelism: For `Ship.HASH`: key group -> subtask.
        committables: No barrier overtakes what it carries (see `StreamEdge`).
    """

    edge: EdgeId
    ship: Ship
    consumers: tuple[int, ...]
    consumer_parallelism: int
    consumer_max_parallelism: int
    key_columns: tuple[str, ...] = ()
    type: PartitionType = PartitionType.PIPELINED_BOUNDED
    committables: bool = False


class TaskDeployment(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a TaskManager needs to run one attempt of one subtask.

    Attributes:
        artifact: SHA-256 (hex) of the user code; fetched by `FetchArtifact`.
        checkpoint_root: fsspec URL under which the job's snapshots are written.
        checkpointing: Checkpoints are enabled (decides how a task ends).
        config: The job's configuration as text.
        allocation: The lease of the slot that it runs in; tasks of one slot sharing slice name the same one.
    """

    attempt: AttemptId
    job_name: str
    lineage: LineageId
    epoch: LeaderEpoch
    vertex: JobVertex
    artifact: str
    gates: tuple[GateDescriptor, ...] = ()
    partitions: tuple[PartitionDescriptor, ...] = ()
    restore: TaskRestore | None = None
    checkpoint_root: str
    checkpointing: bool
    config: dict[str, str] = {}
    allocation: AllocationId = AllocationId("")

    __repr__ = redacted_repr


# --- JobManager -> TaskManager --------------------------------------------------------------------


class DeployTask(_Message, frozen=True, kw_only=True):
    deployment: TaskDeployment


class CancelTask(_Message, frozen=True, kw_only=True):
    attempt: AttemptId


class SnapshotPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot and the fsspec URL of its directory."""

    checkpoint_id: CheckpointId
    directory: str


class TriggerCheckpoint(_Message, frozen=True, kw_only=True):
    """`directory`: fsspec URL of this snapshot's own directory; state goes below it. `before`: of a drain,
    the resumable savepoint that is taken first, at the same position, before the end of data. `format`: of
    a savepoint, and of the one `before` it. `full`: of a checkpoint, which refers to no file of another.
    `aligned`: of a checkpoint whose barriers overtake nothing, whatever is configured."""

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
    """The manifest of `checkpoint_id` is durable, written by the leader of `epoch`: commit what it lists."""

    attempt: AttemptId
    checkpoint_id: CheckpointId
    epoch: LeaderEpoch


class CheckpointAborted(_Message, frozen=True, kw_only=True):
    attempt: AttemptId
    checkpoint_id: CheckpointId
    latest_completed: CheckpointId | None


class AssignSplits(_Message, frozen=True, kw_only=True):
    """`no_more`: nothing follows for this subtask; a bounded reader ends when these are read."""

    attempt: AttemptId
    splits: tuple[Split, ...]
    no_more: bool = False


class ReleasePartitions(_Message, frozen=True, kw_only=True):
    """Delete blocking partitions that nobody will read any more; unknown ones are fine.

    `partitions`: (attempt that produced it, edge).
    """

    job: JobId
    partitions: tuple[tuple[AttemptId, EdgeId], ...]


class ReleaseTaskManager(_Message, frozen=True, kw_only=True):
    """Cancel everything and exit. `rejoin`: a worker that came by itself registers anew instead."""

    task_manager: TaskManagerId
    reason: str
    rejoin: bool = False


class Ping(_Message, frozen=True, kw_only=True):
    """Is this TaskManager there? The heartbeat of the master; refused by any other TaskManager."""

    task_manager: TaskManagerId


# --- TaskManager -> JobManager --------------------------------------------------------------------


class RegisterTaskManager(_Message, frozen=True, kw_only=True):
    """First message of a TaskManager. `address`: Flight location of its server; `profile`: of one slot;
    `memory`: parts of its memory plan by name, bytes."""

    task_manager: TaskManagerId
    address: str
    slots: int
    pid: int
    host: str
    profile: ResourceProfile = ResourceProfile()
    memory: dict[str, int] = {}
    protocol: int = PROTOCOL_VERSION


class TaskMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of one attempt since its start, and what waits before and behind it now.

    Attributes:
        busy_per_s, backpressured_per_s, idle_per_s: ms of the last second or so, in each second.
        watermark: ms, or None.
        in_queue_length, out_queue_length: Batches (and, of other processes, events) that wait.
        in_pool_used, in_pool_size: Bytes that wait of what other processes sent, and what may.
        out_pool_used, out_pool_size: Bytes of output that wait for consumers, and what may.
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
    watermark: int | None = None
    in_queue_length: int = 0
    out_queue_length: int = 0
    in_pool_used: int = 0
    in_pool_size: int = 0
    out_pool_used: int = 0
    out_pool_size: int = 0
    user: dict[str, int] = {}


class Heartbeat(_Message, frozen=True, kw_only=True):
    """Refused when the JobManager does not know (or has given up) this TaskManager: it must exit.

    Attributes:
        stored: Jobs that results lie here for, to be read by tasks that come later. Which of them are over is
            told by `JobsOver`.
    """

    task_manager: TaskManagerId
    metrics: tuple[tuple[AttemptId, TaskMetrics], ...] = ()
    stored: tuple[JobId, ...] = ()


class TaskFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a task failed.

    Attributes:
        recoverable: False: restarting cannot help (a configuration error, or the user says so).
        lost_partition: It could not be read (Flink's PartitionException): its producer has to run again.
    """

    kind: str
    message: str
    traceback: str = ""
    recoverable: bool = True
    lost_partition: PartitionId | None = None


class TaskStateChanged(_Message, frozen=True, kw_only=True):
    """`state`: name of an `ExecutionState` the worker may report: INITIALIZING, RUNNING, FINISHED,
    CANCELED, FAILED. `metrics`: the last ones, of a task that has ended: no heartbeat would come in time for
    a job that ends with it."""

    attempt: AttemptId
    state: str
    failure: TaskFailure | None = None
    metrics: TaskMetrics | None = None


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
    """A pulling source has room for one more split."""

    attempt: AttemptId


class CommitReported(_Message, frozen=True, kw_only=True):
    """A checkpoint's output of a sink is visible; for the catalogue, not for recovery. `already`: not by this
    attempt."""

    attempt: AttemptId
    sink_uid: str
    checkpoint_id: CheckpointId
    rows: int
    table_version: int | None = None
    already: bool = False


class FetchArtifact(_Message, frozen=True, kw_only=True):
    """Answered with `Artifact`."""

    job: JobId
    sha256: str


# --- answers --------------------------------------------------------------------------------------


class Ack(_Message, frozen=True, kw_only=True):
    """Received and will be acted on."""


class Registered(_Message, frozen=True, kw_only=True):
    """To a registration: the worker belongs to the cluster, and keeps to its times for heartbeats."""

    heartbeat_interval_ms: int
    heartbeat_timeout_ms: int


class JobsOver(_Message, frozen=True, kw_only=True):
    """To a heartbeat: received, and these of the jobs that it names have ended. Nobody will read what is
    stored for them."""

    jobs: tuple[JobId, ...]


class Refused(_Message, frozen=True, kw_only=True):
    """Not acted on, and asking again will not help. `fenced`: the sender was given up by this master
    and replaced; it must end, whatever it was doing."""

    reason: str
    fenced: bool = False


class Artifact(_Message, frozen=True, kw_only=True):
    content: bytes


# --- many in one request --------------------------------------------------------------------------


class Bundle(_Message, frozen=True, kw_only=True):
    """Messages for one receiver, acted on one after the other; see `unistream.model.bundle`.

    `messages`: the wire form of each, so that one that cannot be read costs none of the others.
    """

    messages: Annotated[tuple[msgspec.Raw, ...], msgspec.Meta(max_length=BUNDLE_MESSAGES_MAX)]


class Broken(_Message, frozen=True, kw_only=True):
    """Of one message in a bundle: it could not be read, or the receiver broke while it acted on it."""

    reason: str


class Answers(_Message, frozen=True, kw_only=True):
    """Those to the messages of a bundle, in their order."""

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
)
"""What a worker says about an attempt; the only messages to a JobManager that travel in bundles."""
ToJobManager = RegisterTaskManager | Heartbeat | TaskReport | FetchArtifact
Answer = Ack | Registered | JobsOver | Refused | Artifact | Answers
Request = ToTaskManager | ToJobManager | Bundle

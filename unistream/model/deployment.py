"""One attempt of a subtask, as a TaskManager deploys it: what it runs, reads and writes."""

from __future__ import annotations

import msgspec

from unistream.base.ids import AllocationId, AttemptId, EdgeId, LeaderEpoch, LineageId, TaskManagerId
from unistream.base.secrets import Secret, redacted_repr
from unistream.model.graph import JobVertex, Ship
from unistream.model.partition_type import PartitionType
from unistream.model.snapshot import TaskRestore
from unistream.model.stored_rows import StoredRows


class ChannelDescriptor(msgspec.Struct, frozen=True, kw_only=True):
    """One subpartition that a consumer reads: `address` is the Flight location of its TaskManager. `stored`:
    it was written in full before the consumer was deployed. `ended`: it is stored, and all its rows are in
    the state from which the consumer is restored: it is not read again, and `address` may be empty.
    `content`: what the producer reported for this consumer (`ReportedPartition`), instead of a place to read
    it. `rows`: it is in a file of the checkpoint storage, whose index says where."""

    producer: AttemptId
    edge: EdgeId
    subpartition: int
    task_manager: TaskManagerId
    address: str
    stored: bool = False
    ended: bool = False
    content: bytes | None = None
    rows: StoredRows | None = None

    @property
    def is_here(self) -> bool:
        """Nothing of it is read from another worker."""
        return self.ended or self.content is not None or self.rows is not None


class GateDescriptor(msgspec.Struct, frozen=True, kw_only=True):
    """All channels that feed one logical input. `committables`: they carry those of a sink (see
    `StreamEdge`)."""

    input_index: int
    channels: tuple[ChannelDescriptor, ...]
    committables: bool = False


class PartitionDescriptor(msgspec.Struct, frozen=True, kw_only=True):
    """A result partition that this task produces, one subpartition per consumer subtask it serves.

    Attributes:
        consumers: Indices of the consumer subtasks, in subpartition order.
        consumer_parallelism, consumer_max_parallelism: For `Ship.HASH`: key group -> subtask.
        committables: No barrier overtakes what it carries (see `StreamEdge`).
        buckets: Of a stored partition whose consumers sort its rows: into how many buckets those of each are
            divided (`model.key_buckets`). 0: not at all.
    """

    edge: EdgeId
    ship: Ship
    consumers: tuple[int, ...]
    consumer_parallelism: int
    consumer_max_parallelism: int
    key_columns: tuple[str, ...] = ()
    type: PartitionType = PartitionType.PIPELINED_BOUNDED
    committables: bool = False
    buckets: int = 0


class TaskDeployment(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a TaskManager needs to run one attempt of one subtask.

    Attributes:
        artifact: SHA-256 (hex) of the user code; fetched by `FetchArtifact`.
        checkpoint_root: fsspec URL under which the job's snapshots are written.
        checkpointing: Checkpoints are enabled (decides how a task ends).
        config: The job's configuration as text.
        allocation: The lease of its slot; tasks that share a slot have the same one.
        exchange: Token of the job: its tasks present it to read each other's rows in another process.
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
    exchange: Secret = Secret("")

    __repr__ = redacted_repr

    @property
    def reads_reported(self) -> bool:
        """It reads committables that were reported to the master, so it commits what it reads."""
        return any(channel.content is not None for gate in self.gates for channel in gate.channels)

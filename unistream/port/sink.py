"""Sinks after Flink's Sink V2: writer -> committable -> committer.

A committable is opaque, versioned bytes that name staged output. It is committed only with a
`CommitPermit`; every commit is idempotent by (lineage, sink uid, checkpoint id).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import pyarrow as pa

from unistream.base.ids import AttemptId, CheckpointId, JobId, LineageId, OperatorUid
from unistream.model.elements import Batch
from unistream.port.metrics import Metrics
from unistream.port.operator import CommitPermit


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkContext:
    """Where a writer or committer runs.

    Attributes:
        restored: The checkpoint it was restored from, or None.
        checkpointing: False: everything is committed at the end of input, under the id behind `restored`.
    """

    job: JobId
    lineage: LineageId
    sink_uid: OperatorUid
    attempt: AttemptId
    index: int
    parallelism: int
    restored: CheckpointId | None
    metrics: Metrics
    checkpointing: bool = True

    @property
    def committed_max(self) -> int:
        """Newest checkpoint that earlier attempts of this job can have committed; 0: none. What is committed
        behind it shows a rewind.

        Without checkpoints an attempt starts from where the one before did, though that may have committed
        and died before anyone heard of it. The first attempt of a job that was restored has no such excuse.
        """
        restored = self.restored or 0
        repeated = self.restored is None or self.attempt.attempt > 0
        return restored + 1 if not self.checkpointing and repeated else restored


class SinkWriter(Protocol):
    """Stages output that nobody sees until it is committed."""

    def open(self, context: SinkContext, restored: Sequence[bytes]) -> None:
        """`restored`: states of one or several former writers."""

    def write(self, batch: Batch) -> None: ...

    def flush(self, end_of_input: bool) -> None:
        """Everything written so far becomes durable (still invisible)."""

    def prepare_commit(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        """Committables of all that was flushed since the last call; maybe none."""

    def snapshot_state(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        """State of the writer itself, after prepare_commit."""

    def close(self) -> None:
        """Drops what was not prepared; never what was."""


class CommitOutcome(Enum):
    COMMITTED = "committed"
    ALREADY_COMMITTED = "already committed"
    RETRY = "retry"  # again at once, at most sink.committer.retries times


@dataclass(frozen=True, slots=True)
class CommitResult:
    """`rows` made visible by this call; `table_version` after it, where the sink has one."""

    outcome: CommitOutcome
    rows: int = 0
    table_version: int | None = None


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """Everything of one checkpoint of one sink, in order."""

    checkpoint_id: CheckpointId
    committables: tuple[bytes, ...]


class Committer(Protocol):
    """Makes staged output visible."""

    def open(self, context: SinkContext) -> None: ...

    def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
        """All of the request or nothing; safe to call again with the same request.

        Raises:
            Fenced: someone else owns this sink's output by now.
            OutcomeUnknown: it may have happened; the task fails and the restored one asks again.
        """

    def close(self) -> None: ...


class Sink(Protocol):
    """What a user gives to `DataStream.sink_to`. Picklable; holds configuration only."""

    @property
    def name(self) -> str: ...

    @property
    def global_committer(self) -> bool:
        """True: one committer for all writers (tables). False: one beside each writer."""

    def check(self, schema: pa.Schema | None) -> None:
        """On the client, before anything starts: does this stream fit? Raises ConfigError."""

    def create_writer(self) -> SinkWriter: ...

    def create_committer(self) -> Committer | None:
        """None: the sink is not transactional (print)."""

"""Sinks after Flink's Sink V2 (FLIP-143, FLIP-191, FLIP-371).

    writer ─► [pre-commit stages] ─► committer ─► [post-commit stages] ─► [global committer]

A committable is opaque, versioned bytes that name staged output. It is committed only with a
`CommitPermit`; every commit is idempotent by (lineage, sink uid, checkpoint id). Writer and committer are
enough for most sinks; the parts in brackets are given by a sink that also has the method of
`WithPreCommitStages`, `WithPostCommitStages` or `WithGlobalCommitter`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, runtime_checkable

import pyarrow as pa

from unistream.base.ids import AttemptId, CheckpointId, JobId, LineageId, OperatorUid
from unistream.model.elements import Batch
from unistream.port.metrics import Metrics
from unistream.port.operator import CommitPermit

_ANY_CHECKPOINT: Final = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkContext:
    """Where a writer or committer runs.

    Attributes:
        restored: The checkpoint it was restored from, or None.
        checkpointing: False: everything is committed at the end of input, under the id behind `restored`.
        finalizing: What a savepoint lists is committed outside of a job, and nothing follows it.
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
    finalizing: bool = False

    @property
    def committed_max(self) -> int:
        """Newest checkpoint that earlier attempts of this job can have committed; 0: none. What is committed
        behind it shows a rewind.

        Without checkpoints an attempt starts from where the one before did, though that may have committed
        and died before anyone heard of it. The first attempt of a job that was restored has no such excuse.
        Where nothing follows, nothing can be written twice: any checkpoint may have been committed.
        """
        if self.finalizing:
            return _ANY_CHECKPOINT
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
    """How a commit went. What is neither of these is raised: the task fails, and the restored one asks
    again with the same committables, so nothing of them may be deleted."""

    COMMITTED = "committed"
    ALREADY_COMMITTED = "already committed"
    RETRY = "retry"  # again at once, at most sink.committer.retries times
    FAILED = "failed for a known reason"  # never committed; dropped, counted, and the job goes on


@dataclass(frozen=True, slots=True)
class VisibleRows:
    """Rows of one checkpoint that readers see. `already`: an earlier call had committed them."""

    checkpoint_id: CheckpointId
    rows: int
    already: bool = False


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What a commit did.

    Attributes:
        rows: Made visible by this call.
        visible: Rows of each checkpoint of the call, also those that an earlier attempt had committed: it may
            have died before anyone heard of it. Empty: `rows`, of the newest checkpoint.
        table_version: After it, where the sink has one.
        again: With RETRY: the committables that are still to be committed, maybe changed; None: all.
        failed: Committables that can never be committed, whatever the outcome of the others.
        reason: Why `failed` ones failed (or all of them, with FAILED); for the log.
    """

    outcome: CommitOutcome
    rows: int = 0
    table_version: int | None = None
    again: tuple[bytes, ...] | None = None
    failed: tuple[bytes, ...] = ()
    reason: str = ""
    visible: tuple[VisibleRows, ...] = ()


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """Everything of one checkpoint of one sink, in order."""

    checkpoint_id: CheckpointId
    committables: tuple[bytes, ...]


class Committer(Protocol):
    """Makes staged output visible.

    `commit` is called on a thread of its own, one call at a time, so that it holds up neither rows nor
    barriers; `open` on the task's thread; `close` on either, never during a commit.
    """

    def open(self, context: SinkContext) -> None: ...

    def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
        """All of the request or what the result says; safe to call again with the same request.

        Raises:
            Fenced: someone else owns this sink's output by now.
            OutcomeUnknown: it may have happened; the task fails and the restored one asks again.
        """

    def close(self) -> None: ...


@runtime_checkable
class JointCommitter(Protocol):
    """A committer that takes all checkpoints of one notice in one call.

    A notice covers several when a checkpoint was aborted that some writers had prepared, or when
    one of them was subsumed. One by one, a reader could see the part of the first without the rest; one
    transaction over all leaves no such moment.
    """

    def commit_all(self, permit: CommitPermit, requests: Sequence[CommitRequest]) -> CommitResult:
        """`requests`: by checkpoint, ascending, none empty. As `Committer.commit`; `again` and `failed` are
        looked up in all of them."""


@runtime_checkable
class StatefulCommitter(Protocol):
    """A committer that remembers across restarts what it has committed, and where. So it notices that this
    was removed, or put back to an earlier state, instead of beginning again in an empty place."""

    def restore_state(self, items: Sequence[bytes]) -> None:
        """Before `open`. States of one or several former committers; none: a fresh start, or a snapshot of a
        version that kept none."""

    def snapshot_state(self) -> Sequence[bytes]:
        """On the task's thread, maybe during a commit: what is certain to be committed by now."""


@runtime_checkable
class RecoverableCommitter(Protocol):
    """A committer that can be made from its committables alone, so that what a savepoint lists can be
    committed without the user's code (`unistream.connector.committers`)."""

    @property
    def connector(self) -> str:
        """The name under which that is declared; kept in snapshots beside the committables."""


class CommittableFunction(Protocol):
    """What a stage before or behind the committer does, once for each checkpoint."""

    def open(self, context: SinkContext) -> None: ...

    def process(self, checkpoint_id: CheckpointId, committables: Sequence[bytes]) -> Sequence[bytes]:
        """Committables in, committables out.

        Before the committer: part of preparing the checkpoint, so the barrier waits for it. Behind the
        committer: off the barrier path, with what was committed; after a failure maybe once more.
        """

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittableStage:
    """A step between writer and committer, or behind the committer.

    Attributes:
        name: Unique in the sink; part of the operator's uid.
        create: Makes its function, in the worker.
        parallel: True: one beside each writer (or committer), with its committables only. False: one for
            all, so that the committables of all come together (compaction).
    """

    name: str
    create: Callable[[], CommittableFunction]
    parallel: bool = True


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


@runtime_checkable
class WithPreCommitStages(Protocol):
    """A sink that changes committables before they are committed."""

    def pre_commit_stages(self) -> Sequence[CommittableStage]: ...


@runtime_checkable
class WithPostCommitStages(Protocol):
    """A sink that does something with what was committed."""

    def post_commit_stages(self) -> Sequence[CommittableStage]: ...


@runtime_checkable
class WithGlobalCommitter(Protocol):
    """A sink with one committer behind all committers: it gets what they have committed, the whole
    checkpoint at once. Where `create_committer` gives None it is the only one."""

    def create_global_committer(self) -> Committer: ...


def is_transactional(sink: Sink) -> bool:
    """Its writers prepare committables."""
    return isinstance(sink, WithGlobalCommitter) or sink.create_committer() is not None

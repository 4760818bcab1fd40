"""Sinks after Flink's Sink V2 (FLIP-143, FLIP-191, FLIP-371).

    writer ─► [pre-commit stages] ─► committer ─► [post-commit stages] ─► [global committer]

A committable is opaque, versioned bytes that name staged output. It is committed only with a
`CommitPermit`; every commit is idempotent by (lineage, sink uid, checkpoint id). Writer and committer are
enough for most sinks; the parts in brackets come from `WithPreCommitStages`, `WithPostCommitStages` or
`WithGlobalCommitter`, if a sink implements them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
        predecessor: The job that took that checkpoint; this one itself after its first own one. None: not
            restored.
        checkpointing: False: everything is committed at the end of input, under the id after `restored`.
        exclusive: False: other attempts of the same subtask may run at the same time, and one of them may
            win. So a writer removes nothing of theirs; what is left of them the committer may remove, after
            it has committed.
        finalizing: A savepoint's pending commits are made outside of a job, and nothing follows.
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
    exclusive: bool = True
    finalizing: bool = False
    predecessor: JobId | None = None

    @property
    def committed_max(self) -> int:
        """Newest checkpoint that earlier attempts of this job can have committed; 0: none. A later committed
        one shows a rewind.

        Without checkpoints an attempt starts where the previous one did, which may have committed and died
        before it reported that; this cannot be so in the first attempt of a restored job. When finalizing,
        nothing can be written twice: any checkpoint may have been committed.
        """
        if self.finalizing:
            return _ANY_CHECKPOINT
        restored = self.restored or 0
        repeated = self.restored is None or self.attempt.attempt > 0
        return restored + 1 if not self.checkpointing and repeated else restored


class SinkWriter(Protocol):
    """Stages output that is invisible until it is committed."""

    def open(self, context: SinkContext, restored: Sequence[bytes]) -> None:
        """`restored`: states of one or several former writers."""

    def write(self, batch: Batch) -> None: ...

    def flush(self, end_of_input: bool) -> None:
        """Everything written so far becomes durable (still invisible)."""

    def prepare_commit(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        """Committables of the output flushed since the last call; may be empty."""

    def snapshot_state(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        """State of the writer itself, after prepare_commit."""

    def close(self) -> None:
        """Drops output that is not in a committable, and no other."""


class CommitOutcome(Enum):
    """How a commit has ended. Anything else is an exception: the task fails, and the restored one commits the
    same committables again, so their output must not be deleted."""

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
    """The result of a commit.

    Attributes:
        rows: Made visible by this call.
        visible: Rows of each checkpoint of the call, also those that an earlier attempt had committed: it may
            have died before it reported them. Empty: `rows`, of the newest checkpoint.
        table_version: After it, if the sink has one.
        table_rows: Of the whole table in that version; None: not known, or too dear to count.
        again: With RETRY: the committables that are still to be committed, possibly changed; None: all.
        failed: Committables that can never be committed, whatever the outcome of the others.
        reason: Why the `failed` ones failed (or all of them, with FAILED); for the log.
        members: Of a commit group: the results of its sinks, by uid, of which this one is the sum.
    """

    outcome: CommitOutcome
    rows: int = 0
    table_version: int | None = None
    table_rows: int | None = None
    again: tuple[bytes, ...] | None = None
    failed: tuple[bytes, ...] = ()
    reason: str = ""
    visible: tuple[VisibleRows, ...] = ()
    members: tuple[tuple[OperatorUid, CommitResult], ...] = ()


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """Everything of one checkpoint of one sink, in order."""

    checkpoint_id: CheckpointId
    committables: tuple[bytes, ...]


class Committer(Protocol):
    """Makes staged output visible.

    `commit` is called on its own thread, one call at a time, so that it blocks neither rows nor barriers;
    `open` on the task's thread; `close` on either, never during a commit.
    """

    def open(self, context: SinkContext) -> None: ...

    def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
        """Commits all of the request, or what the result says; safe to repeat with the same request.

        Raises:
            Fenced: another job owns this sink's output now.
            OutcomeUnknown: it may have happened; the task fails and the restored one commits again.
        """

    def close(self) -> None: ...


@runtime_checkable
class JointCommitter(Protocol):
    """A committer that takes all checkpoints of one notification in one call.

    A notification covers several if some writers had prepared an aborted checkpoint, or if one was subsumed.
    In one transaction no reader can see a part of the first without the rest.
    """

    def commit_all(self, permit: CommitPermit, requests: Sequence[CommitRequest]) -> CommitResult:
        """Commits several checkpoints as `Committer.commit` does one; `requests`: by checkpoint, ascending,
        none empty. `again` and `failed` refer to all of them."""


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A table as it is now. `rows`: of the whole table, also those of others; None: it does not know."""

    schema: pa.Schema
    rows: int | None


@runtime_checkable
class DescribesTable(Protocol):
    """A sink whose target knows its columns, and perhaps how many rows it has."""

    def description(self) -> TableDescription | None:
        """None: it does not exist. On the client; raises ConfigError, Unreachable."""


@runtime_checkable
class StatefulCommitter(Protocol):
    """A committer that remembers across restarts what it has committed, and where, so that it detects a
    target that was removed or reset to an earlier state."""

    def restore_state(self, items: Sequence[bytes]) -> None:
        """Called before `open`, with the states of all former committers, of which some know more than
        others; none: a fresh start, or a snapshot of a version without them."""

    def snapshot_state(self) -> Sequence[bytes]:
        """What is certainly committed by now. Called on the task's thread, possibly during a commit."""


@runtime_checkable
class RecoverableCommitter(Protocol):
    """A committer that can be made from its committables alone, so that what a savepoint lists can be
    committed without the user's code (`unistream.connector.catalogue`)."""

    @property
    def connector(self) -> str:
        """The name under which that is declared; stored in snapshots with the committables."""


@runtime_checkable
class SoleCommitter(Protocol):
    """A committer that has to be the only one of its sink: a checkpoint that it has committed counts as
    committed for all writers, so a second one would leave out its own committables. A sink that has one next
    to each writer is refused."""

    @property
    def is_sole(self) -> bool: ...


@runtime_checkable
class SeesEmptyCheckpoints(Protocol):
    """A committer that has something to do when a checkpoint is complete in which its sink has no rows."""

    def empty_checkpoint(self, permit: CommitPermit) -> None:
        """Called where `commit` would be if there were rows: on the same thread, with the same errors."""


@runtime_checkable
class ReplacesRows(Protocol):
    """A sink that may replace the rows of an earlier run by those of a later one."""

    @property
    def replaces_rows(self) -> bool:
        """Whether a bounded job that is run again leaves its table as one run does: by the key of each row,
        or by partition."""


@runtime_checkable
class ReplacesByKey(Protocol):
    """A sink that may keep the last row of each key."""

    @property
    def row_key(self) -> tuple[str, ...]:
        """Its columns; empty: it keeps all rows."""


class CommittableFunction(Protocol):
    """The function of a stage before or after the committer, called once for each checkpoint."""

    def open(self, context: SinkContext) -> None: ...

    def process(self, checkpoint_id: CheckpointId, committables: Sequence[bytes]) -> Sequence[bytes]:
        """Committables in, committables out.

        Before the committer: part of preparing the checkpoint, so the barrier waits for it. After the
        committer: off the barrier path, with what was committed; may be repeated after a failure.
        """

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittableStage:
    """A step between writer and committer, or after the committer.

    Attributes:
        name: Unique in the sink; part of the operator's uid.
        create: Makes its function, in the worker.
        parallel: True: one for each writer (or committer), with its committables only. False: one for the
            committables of all (compaction).
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
        """True: one committer for all writers (tables). False: one for each writer."""

    def check(self, schema: pa.Schema | None) -> None:
        """Checks the stream on the client, before anything starts. Raises ConfigError if it does not fit."""

    def create_writer(self) -> SinkWriter: ...

    def create_committer(self) -> Committer | None:
        """None: the sink is not transactional (print)."""


@runtime_checkable
class WithPreCommitStages(Protocol):
    """A sink that changes committables before they are committed."""

    def pre_commit_stages(self) -> Sequence[CommittableStage]: ...


@runtime_checkable
class WithPostCommitStages(Protocol):
    """A sink that processes what was committed."""

    def post_commit_stages(self) -> Sequence[CommittableStage]: ...


@runtime_checkable
class WithGlobalCommitter(Protocol):
    """A sink with one committer after all committers: it gets the committed committables of a whole
    checkpoint at once. If `create_committer` returns None, it is the only one."""

    def create_global_committer(self) -> Committer: ...


@runtime_checkable
class RecordsPositions(Protocol):
    """A sink whose committer records with each commit how far the sources were read
    (`CommitPermit.positions`), so that another job can go on from there. It has one committer for all
    writers, which drops nothing; of several requests under one permit the positions are those of all."""

    @property
    def records_positions(self) -> bool: ...


def is_transactional(sink: Sink) -> bool:
    """Its writers prepare committables."""
    return isinstance(sink, WithGlobalCommitter) or sink.create_committer() is not None


@runtime_checkable
class AppendsToForeign(Protocol):
    """A sink that can append to what another line of jobs writes (`unistream.port.line`)."""

    def appending(self) -> Sink:
        """A copy that does."""
        ...


class RowCheck(Protocol):
    """Finds rows that a target would refuse, before they are written. Of one subtask; used by its thread."""

    def open(self) -> None:
        """Asks the target for what it has to know. Raises Unreachable, ConfigError."""

    def refused(self, batch: Batch) -> Mapping[int, str]:
        """Position of each row that would be refused -> why. Contacts nobody but the target."""
        ...


@runtime_checkable
class FollowsCommits(Protocol):
    """A row check that compares rows with those of the target, and with those that it has passed on and that
    are not committed yet."""

    def follow(
        self, lineage: str, sink_uid: str, restored: CheckpointId | None, items: Sequence[bytes]
    ) -> None:
        """Called before `open`: whose commits make rows visible that were passed on, and states of all former
        checks."""

    def passed(self, checkpoint_id: CheckpointId) -> None:
        """All rows so far belong to that checkpoint, or to an earlier one."""

    def snapshot_state(self) -> Sequence[bytes]: ...

    def close(self) -> None: ...


@runtime_checkable
class ChecksRows(Protocol):
    """A sink that can say of rows that its target would refuse them."""

    def create_row_check(self) -> RowCheck:
        """Called in each subtask."""
        ...

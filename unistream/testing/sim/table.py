"""The external system of a simulated job: a table in memory, written by two-phase commits.

Rows are staged under a name, sent as committables, and become visible by a commit. A committer for all
writers commits all that a notification covers in one transaction, whose version is its newest checkpoint (as
Delta's); one for each writer commits each name once (as a rename). Every commit is checked (`checkers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
import pyarrow as pa

from unistream.base.errors import Fenced, OutcomeUnknown, Unreachable
from unistream.base.ids import CheckpointId, LeaderEpoch, LineageId, OperatorUid
from unistream.model.elements import Batch
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitOutcome, CommitRequest, CommitResult, Committer, SinkContext, SinkWriter
from unistream.testing.sim.world import World

Row = tuple[int, int, int, int]
"""(split, offset, key, count of the key up to this row, or 0 if the job does not count)."""

Name = tuple[LineageId, OperatorUid, CheckpointId, str]


class Judge(Protocol):
    """Checks every commit before it is visible; raises `Violation`."""

    def on_commit(
        self, uid: OperatorUid, permit: CommitPermit, names: Sequence[bytes], rows: Sequence[Row]
    ) -> None: ...


class Table:
    """Visible and staged rows of all sinks.

    Attributes:
        visible: Sink -> rows in the order of their commits.
        staged: Name -> rows that are durable and invisible.
        committed: Names that committers of single writers have committed.
        versions: Newest transaction of each committer for all writers.
        epoch: The newest leader that has opened a committer.
    """

    def __init__(self, world: World, judge: Judge) -> None:
        self.world = world
        self.visible: dict[OperatorUid, list[Row]] = {}
        self.staged: dict[str, tuple[Row, ...]] = {}
        self.committed: set[Name] = set()
        self.versions: dict[tuple[LineageId, OperatorUid], CheckpointId] = {}
        self.epoch = LeaderEpoch(0)
        self._judge = judge
        self._names = 0

    def stage(self, hint: str, rows: list[Row]) -> str:
        self._names += 1
        name = f"{hint}-{self._names}"
        self.staged[name] = tuple(rows)
        return name

    def drop(self, name: str) -> None:
        self.staged.pop(name, None)

    def claim(self, epoch: LeaderEpoch) -> None:
        """Fences the committers of older leaders."""
        self.epoch = max(self.epoch, epoch)

    def check_epoch(self, epoch: LeaderEpoch) -> None:
        if epoch < self.epoch:
            self.world.sometimes("a commit of an older leader was fenced")
            raise Fenced(f"a committer of leader {self.epoch} has opened; {epoch} is older")

    def commit(
        self, uid: OperatorUid, permit: CommitPermit, requests: Sequence[CommitRequest], *, whole: bool
    ) -> CommitResult:
        """Makes the new committables of `requests` visible at once; safe to repeat."""
        new = [
            (request.checkpoint_id, payload)
            for request in requests
            for payload in request.committables
            if not self.is_committed(uid, permit.lineage, request.checkpoint_id, payload, whole=whole)
        ]
        if not new:
            self.world.sometimes("a commit was repeated")
            return CommitResult(CommitOutcome.ALREADY_COMMITTED)
        newest = max(checkpoint_id for checkpoint_id, _ in new)
        if newest != min(checkpoint_id for checkpoint_id, _ in new):
            self.world.sometimes("a commit covered several checkpoints")
        rows = [row for _, payload in new for row in self.staged[_name(payload)]]
        self._judge.on_commit(uid, permit, [payload for _, payload in new], rows)
        if whole:
            self.versions[permit.lineage, uid] = newest
        else:
            self.committed.update((permit.lineage, uid, n, _name(payload)) for n, payload in new)
        self.visible.setdefault(uid, []).extend(rows)
        self.world.log(f"table: {uid} commits checkpoint {newest}, {len(rows)} rows")
        return CommitResult(CommitOutcome.COMMITTED, len(rows))

    def is_committed(
        self,
        uid: OperatorUid,
        lineage: LineageId,
        checkpoint_id: CheckpointId,
        payload: bytes,
        *,
        whole: bool,
    ) -> bool:
        """It is visible already: by the version of its transaction if `whole`, else by its name."""
        if whole:
            return self.versions.get((lineage, uid), 0) >= checkpoint_id
        return (lineage, uid, checkpoint_id, _name(payload)) in self.committed


def _name(payload: bytes) -> str:
    return msgspec.msgpack.decode(payload, type=str)


class TableSink:
    """`port.sink.Sink` into a `Table`. `whole`: one committer for all writers."""

    name = "table"

    def __init__(self, table: Table, *, whole: bool) -> None:
        self._table = table
        self.global_committer = whole

    def check(self, schema: pa.Schema | None) -> None:
        """Does nothing: only the simulator's rows are written."""

    def create_writer(self) -> SinkWriter:
        return TableWriter(self._table)

    def create_committer(self) -> Committer | None:
        return JointTableCommitter(self._table) if self.global_committer else TableCommitter(self._table)


class TableWriter:
    """Stages the rows of one writer in the table."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._rows: list[Row] = []
        self._flushed: list[str] = []
        self._hint = ""

    def open(self, context: SinkContext, restored: Sequence[bytes]) -> None:
        self._hint = f"{context.sink_uid}-{context.index}.{context.attempt.attempt}"

    def write(self, batch: Batch) -> None:
        records = batch.records
        columns = [records.column(name).to_pylist() for name in ("split", "offset", "k")]
        counts = records.column("n").to_pylist() if "n" in records.schema.names else [0] * batch.num_rows
        self._rows.extend(zip(*columns, counts, strict=True))

    def flush(self, end_of_input: bool) -> None:
        if self._rows:
            self._flushed.append(self._table.stage(self._hint, self._rows))
            self._rows = []

    def prepare_commit(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        names, self._flushed = self._flushed, []
        return [msgspec.msgpack.encode(name) for name in names]

    def snapshot_state(self, checkpoint_id: CheckpointId) -> Sequence[bytes]:
        return ()

    def close(self) -> None:
        for name in self._flushed:
            self._table.drop(name)
        self._flushed = []


class TableCommitter:
    """Commits, sometimes with an unknown outcome."""

    whole = False

    def __init__(self, table: Table) -> None:
        self._table = table
        self._context: SinkContext | None = None

    def open(self, context: SinkContext) -> None:
        self._context = context

    def commit(self, permit: CommitPermit, request: CommitRequest) -> CommitResult:
        return self._commit(permit, [request])

    def _commit(self, permit: CommitPermit, requests: Sequence[CommitRequest]) -> CommitResult:
        context, table, world = self._context, self._table, self._table.world
        assert context is not None, "open comes first"
        table.check_epoch(permit.epoch)
        if world.chance(world.faults.commit_retry):
            return CommitResult(CommitOutcome.RETRY)
        newest = requests[-1].checkpoint_id
        unknown = world.chance(world.faults.commit_unknown)
        if unknown and world.chance(0.5):
            world.sometimes("a commit did not happen and its outcome is unknown")
            raise Unreachable(f"commit of checkpoint {newest}: no answer, and it did not happen")
        result = table.commit(context.sink_uid, permit, requests, whole=self.whole)
        if unknown:
            world.sometimes("a commit happened and its outcome is unknown")
            raise OutcomeUnknown(f"commit of checkpoint {newest}: no answer")
        return result

    def close(self) -> None:
        """Nothing is held."""


class JointTableCommitter(TableCommitter):
    """One for all writers: a notification's rows become visible at once (`port.sink.JointCommitter`)."""

    whole = True

    def commit_all(self, permit: CommitPermit, requests: Sequence[CommitRequest]) -> CommitResult:
        return self._commit(permit, requests)

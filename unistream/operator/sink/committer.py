"""The operators of a sink that commit, and those that process what was committed.

                        rows                      notification n, or a whole checkpoint
    committables ──────────────► pending ──────────────────────► committing (one at a time, in the background)
                                    ▲                                   │ done, on the task's thread
                                    └── pending, and in every ──────────┤
                                        snapshot, until done            ▼
                                                            removed, reported, announced downstream

A barrier never waits for a commit; a second notification waits for the first, and a task finishes after both.
What is committed while snapshot n + 1 is taken is in that snapshot too: a commit is safe to repeat.

    CommitterOperator   commits on the notification of a checkpoint; restored committables at once; without
                        checkpoints at the end of input
    OnCommitOperator    follows it: post-commit stages and a global committer. Its input is durable and
        committed,
                        so it processes a checkpoint when it is whole

Both announce every checkpoint downstream, also an empty one, and at last that nothing more follows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from unistream.base.config import COMMITTER_RETRIES, Configuration
from unistream.base.crash_points import crash_point
from unistream.base.errors import ProtocolError
from unistream.base.ids import CheckpointId, OperatorUid
from unistream.base.limits import MIN_WATERMARK
from unistream.model.elements import Batch
from unistream.model.snapshot import ListMode, OperatorListState, OperatorSnapshot, OperatorState
from unistream.operator.sink.commit_rounds import CommitRounds, Committed
from unistream.operator.sink.committables import NOTHING_MORE, Committables, Due
from unistream.operator.sink.writer import SinkOperator
from unistream.port import sink as sink_port
from unistream.port.operator import CommitPermit

COMMITTER_STATE: Final = "committables"
TARGET_STATE: Final = "committed-into"  # state of a `StatefulCommitter`
COMMITTED: Final = "committedCommittables"

CreateCommitter = Callable[[], sink_port.Committer | None]

_log = logging.getLogger(__name__)


class CommittingOperator(SinkOperator):
    """Pending committables, and at most one commit in the background."""

    _create: CreateCommitter

    def __init__(self, sink: sink_port.Sink, sink_uid: OperatorUid | None = None) -> None:
        super().__init__(sink, sink_uid)
        self._committables = Committables(sink.name)
        self._rounds: CommitRounds | None = None
        self._waiting: CommitPermit | None = None  # of the newest checkpoint notified during a commit
        self._busy = False
        self._ended = False
        self._connector = ""
        self._stateful: sink_port.StatefulCommitter | None = None

    def create(self) -> sink_port.Committer:
        """A new committer, not open."""
        committer = self._create()
        if committer is None:
            raise ProtocolError(f"sink {self._sink.name!r}: {type(self).__name__} has no committer")
        return committer

    def commit_through(self, around: Callable[[CreateCommitter, sink_port.Sink], CreateCommitter]) -> None:
        """Wraps the factory of its committers."""
        self._create = around(self._create, self._sink)

    def process_batch(self, batch: Batch, input_index: int) -> None:
        self._committables.add(batch.records)

    def _start(self, committer: sink_port.Committer, state: OperatorState) -> None:
        self._connector = _connector_of(committer, self._sink)
        self.context.metrics.add(
            COMMITTED, 0
        )  # there from the start, as Flink's: who sees it knows that it commits
        if isinstance(committer, sink_port.StatefulCommitter):
            self._stateful = committer
            committer.restore_state(state.lists.get(TARGET_STATE, []))
        retries = Configuration(self.context.config).get(COMMITTER_RETRIES)
        self._rounds = CommitRounds(committer, self._sink.name, retries)
        self._rounds.open(self._sink_context(state))
        self._committables.restore(state.lists.get(COMMITTER_STATE, []), state.checkpoint_id or 0)

    def snapshot_state(self, checkpoint_id: CheckpointId) -> OperatorSnapshot:
        sink_uid = self.sink_uid or self.context.uid
        pending = self._committables.encoded(checkpoint_id, sink_uid, self._connector)
        target = () if self._stateful is None else tuple(self._stateful.snapshot_state())
        lists = {
            COMMITTER_STATE: OperatorListState(ListMode.SPLIT, pending),
            TARGET_STATE: OperatorListState(ListMode.UNION, target, may_miss=True),  # the newest counts
        }
        return OperatorSnapshot(lists={name: one for name, one in lists.items() if one.items})

    def close(self) -> None:
        if self._rounds is not None:
            self._rounds.close()

    def _permit(self, checkpoint_id: int) -> CommitPermit:
        context = self.context
        return CommitPermit(
            lineage=context.lineage, checkpoint_id=CheckpointId(checkpoint_id), epoch=context.epoch
        )

    def _commit_now(self, permit: CommitPermit) -> None:
        """Commits what is due, on this thread."""
        due = self._committables.due(permit.checkpoint_id)
        self._done(permit, due, self._open_rounds().run(permit, due))

    def _commit_soon(self, permit: CommitPermit) -> None:
        """Commits what is due in the background, after the current commit."""
        if self._busy:
            if self._waiting is None or self._waiting.checkpoint_id < permit.checkpoint_id:
                self._waiting = permit
            return
        due = self._committables.due(permit.checkpoint_id)
        rounds = self._open_rounds()
        has_output = any(one.payloads for one in due)
        if not has_output and not rounds.sees_empty:
            self._done(permit, due, [])
            return
        self._busy = True
        found: list[Committed] = []

        def commit() -> None:
            if not has_output:
                rounds.run(permit, [])
                return
            crash_point("committer.before_commit")
            found.extend(rounds.run(permit, due))
            crash_point("committer.committed")

        try:
            self.context.run_in_background(commit, lambda: self._after(permit, due, found))
        except BaseException:  # it ran on this thread, and failed
            self._busy = False
            raise

    def _after(self, permit: CommitPermit, due: Sequence[Due], found: Sequence[Committed]) -> None:
        self._busy = False
        self._done(permit, due, found)
        newest, self._waiting = self._waiting, None
        if newest is not None:
            self._commit_soon(newest)

    def _done(self, permit: CommitPermit, due: Sequence[Due], found: Sequence[Committed]) -> None:
        self._committables.remove(one.checkpoint_id for one in due)
        watermarks = {one.checkpoint_id: one.watermark for one in due}
        for committed in found:
            self._report(committed, watermarks)
        failed = {payload for committed in found for payload in committed.failed}
        for one in due:
            self._announce(one.checkpoint_id, self._forwarded(one, failed), one.watermark)
        if permit.checkpoint_id not in watermarks:
            self._announce(permit.checkpoint_id, [], None)
        self._announce_end()

    def _forwarded(self, one: Due, failed: set[bytes]) -> list[bytes]:
        """What is announced downstream for a finished checkpoint."""
        return [payload for payload in one.payloads if payload not in failed]

    def _announce_end(self) -> None:
        if self._ended and not self._committables and not self._busy:
            self._announce(NOTHING_MORE, [], None)

    def _report(self, committed: Committed, watermarks: Mapping[CheckpointId, int | None]) -> None:
        uid = self.sink_uid or self.context.uid
        self._report_rows(uid, committed.checkpoint_id, committed.result, watermarks)
        self._count(committed)

    def _report_rows(
        self,
        uid: OperatorUid,
        newest: CheckpointId,
        result: sink_port.CommitResult,
        watermarks: Mapping[CheckpointId, int | None],
    ) -> None:
        already = result.outcome is sink_port.CommitOutcome.ALREADY_COMMITTED
        for one in result.visible or (sink_port.VisibleRows(newest, result.rows, already=already),):
            self.context.report_commit(
                uid,
                one.checkpoint_id,
                one.rows,
                result.table_version,
                already=one.already,
                table_rows=result.table_rows,
                watermark=_known(watermarks.get(one.checkpoint_id)),
            )

    def _count(self, committed: Committed) -> None:
        uid, metrics = self.sink_uid or self.context.uid, self.context.metrics
        already = committed.result.outcome is sink_port.CommitOutcome.ALREADY_COMMITTED
        succeeded = committed.count - len(committed.failed)
        metrics.add("alreadyCommittedCommittables" if already else COMMITTED, succeeded)
        if committed.failed:
            metrics.add("failedCommittables", len(committed.failed))
            _log.error(
                "event=committables_failed sink=%s checkpoint=%s count=%s reason=%s",
                uid,
                committed.checkpoint_id,
                len(committed.failed),
                committed.reason,
            )
        if committed.retries:
            metrics.add("retriedCommittables", committed.retries)

    def _open_rounds(self) -> CommitRounds:
        assert self._rounds is not None, "initialize_state comes first"
        return self._rounds


class CommitterOperator(CommittingOperator):
    """Committables in; commits them when a durable manifest lists them. `create`: makes the committer; None:
    the sink does."""

    def __init__(
        self,
        sink: sink_port.Sink,
        sink_uid: OperatorUid | None = None,
        create: CreateCommitter | None = None,
    ) -> None:
        super().__init__(sink, sink_uid)
        self._create = create or sink.create_committer

    def initialize_state(self, state: OperatorState) -> None:
        self._start(self.create(), state)
        if state.checkpoint_id is not None:
            permit = self._permit(state.checkpoint_id)
            self._commit_restored(replace(permit, positions=state.positions, snapshot=state.directory))

    def _commit_restored(self, permit: CommitPermit) -> None:
        """Commits the restored committables first: their notification may not have arrived."""
        if not any(one.payloads for one in self._committables.due(permit.checkpoint_id)):
            self._commit_now(permit)
            return
        crash_point("restore.before_commit")
        self._commit_now(permit)
        crash_point("restore.committed")

    def end_input(self, input_index: int) -> None:
        self._ended = True
        if self.context.checkpointing:
            return
        if self._committables:
            crash_point("sink.before_commit")
            self._commit_now(self._permit(self._committables.newest))
            crash_point("sink.committed")
        else:
            self._announce_end()

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        self._commit_soon(permit)


class OnCommitOperator(CommittingOperator):
    """Committed committables in; runs a post-commit stage or a global committer, once for each checkpoint.

    Args:
        create: Makes the global committer, or a `StageCommitter`.
        single_producer: It gets rows from one producer only.
    """

    def __init__(
        self,
        sink: sink_port.Sink,
        create: CreateCommitter,
        *,
        single_producer: bool,
        sink_uid: OperatorUid | None = None,
    ) -> None:
        super().__init__(sink, sink_uid)
        self._create = create
        self._expected = 1 if single_producer else None
        self._stage: StageCommitter | None = None
        self._restored = 0

    def initialize_state(self, state: OperatorState) -> None:
        committer = self.create()
        self._stage = committer if isinstance(committer, StageCommitter) else None
        self._restored = state.checkpoint_id or 0
        self._start(committer, state)

    def process_batch(self, batch: Batch, input_index: int) -> None:
        super().process_batch(batch, input_index)
        whole = self._committables.whole(self._expected)
        if NOTHING_MORE in whole:
            self._ended = True
            self._committables.remove([whole.pop()])
        if whole:
            self._commit_soon(self._permit(whole[-1]))
        else:
            self._announce_end()

    def end_input(self, input_index: int) -> None:
        """Producers that had finished before the restored checkpoint announce nothing."""
        if self._committables.is_silent and self._committables:
            self._ended = True
            self._commit_soon(self._permit(self._restored))

    def _forwarded(self, one: Due, failed: set[bytes]) -> list[bytes]:
        if self._stage is not None:
            return self._stage.made.pop(one.checkpoint_id, [])
        return super()._forwarded(one, failed)

    def _report(self, committed: Committed, watermarks: Mapping[CheckpointId, int | None]) -> None:
        if self._stage is None:
            super()._report(committed, watermarks)


class StageCommitter:
    """A post-commit stage as a committer. `made`: its results, until they are announced."""

    def __init__(self, stage: sink_port.CommittableStage) -> None:
        self._function = stage.create()
        self.made: dict[int, list[bytes]] = {}

    def open(self, context: sink_port.SinkContext) -> None:
        self._function.open(context)

    def commit(self, permit: CommitPermit, request: sink_port.CommitRequest) -> sink_port.CommitResult:
        made = self._function.process(request.checkpoint_id, request.committables)
        self.made[request.checkpoint_id] = list(made)
        return sink_port.CommitResult(sink_port.CommitOutcome.COMMITTED)

    def close(self) -> None:
        self._function.close()


def _connector_of(committer: sink_port.Committer, sink: sink_port.Sink) -> str:
    """Empty: the user's code is needed for the commit, or for what follows it."""
    if isinstance(sink, sink_port.WithPostCommitStages | sink_port.WithGlobalCommitter):
        return ""
    return committer.connector if isinstance(committer, sink_port.RecoverableCommitter) else ""


def _known(watermark: int | None) -> int | None:
    """The watermark for people and programs, to whom no watermark yet is none. Between operators it is one:
    it holds back the others of its checkpoint, as that of an idle subtask, None, does not."""
    return None if watermark == MIN_WATERMARK else watermark

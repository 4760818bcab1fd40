"""The snapshots of a job that are under way: how they begin and how they end without success.

Only one is being started at a time, and one is FINALIZING; see `checkpoint` for the phases.
"""

from __future__ import annotations

from collections.abc import Iterator

from unistream.base.ids import AttemptId, CheckpointId
from unistream.core import contract
from unistream.core.checkpoint.history import CheckpointHistory
from unistream.core.checkpoint.notifications import Notifications
from unistream.core.checkpoint.pending import CheckpointPhase, PendingCheckpoint
from unistream.core.checkpoint.sources import Sources
from unistream.core.checkpoint.store import CompletedSnapshots
from unistream.core.contract import CommandOutbox, JobSettings
from unistream.model.failure_reason import FailureReason
from unistream.model.messages import CheckpointAcked
from unistream.model.snapshot_kind import SnapshotKind


class PendingSnapshots:
    """The pending snapshots by id, oldest first. Iterating goes over those there are now, without those
    dropped meanwhile.

    Attributes:
        now_ms: Of the machine's clock; set before each event.
    """

    def __init__(
        self,
        settings: JobSettings,
        outbox: CommandOutbox,
        *,
        completed: CompletedSnapshots,
        history: CheckpointHistory,
        notifications: Notifications,
        sources: Sources,
    ) -> None:
        self._timeout_ms = settings.checkpoint_timeout_ms
        self._outbox = outbox
        self._completed = completed
        self._history = history
        self._notifications = notifications
        self._sources = sources
        latest = completed.latest
        after_restored = latest.checkpoint_id + 1 if latest is not None else 1
        self._next_id = max(after_restored, settings.first_checkpoint_id)
        self._all: dict[CheckpointId, PendingCheckpoint] = {}
        self._abandoned: set[CheckpointId] = set()  # given up before their directory had a name
        self._undecided: set[CheckpointId] = set()  # given up, though they may exist on the storage
        self.now_ms = 0

    def rebind(self, notifications: Notifications, sources: Sources) -> None:
        """The job goes on with another graph."""
        self._notifications, self._sources = notifications, sources

    # --- looking ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[PendingCheckpoint]:
        for pending in list(self._all.values()):
            if pending.checkpoint_id in self._all:
                yield pending

    def get(self, checkpoint_id: CheckpointId) -> PendingCheckpoint | None:
        return self._all.get(checkpoint_id)

    def within(self, checkpoint_id: CheckpointId, phase: CheckpointPhase) -> PendingCheckpoint | None:
        """That snapshot, if it is in that phase."""
        pending = self._all.get(checkpoint_id)
        return pending if pending is not None and pending.phase is phase else None

    def waiting(self, checkpoint_id: CheckpointId, attempt: AttemptId) -> PendingCheckpoint | None:
        """That snapshot, if it still waits for that attempt."""
        pending = self._all.get(checkpoint_id)
        return pending if pending is not None and pending.awaits(attempt) else None

    @property
    def is_starting(self) -> bool:
        return any(pending.is_starting for pending in self._all.values())

    @property
    def is_finalizing(self) -> bool:
        return any(pending.phase is CheckpointPhase.FINALIZING for pending in self._all.values())

    def next_to_finalize(self) -> PendingCheckpoint | None:
        """The oldest one that all have acknowledged, when no manifest is being written; the terminal one of a
        drain comes after its partner."""
        if self.is_finalizing:
            return None
        ready = (
            pending
            for pending in self._all.values()
            if pending.phase is CheckpointPhase.TRIGGERED
            and pending.is_fully_acked
            and (pending.partner is None or pending.is_resumable_half or pending.partner.is_durable)
        )
        return next(ready, None)

    # --- beginning and ending ---------------------------------------------------------------------

    def open(self, request: contract.SnapshotRequest) -> PendingCheckpoint:
        """Begins a snapshot: its directory is requested."""
        pending = PendingCheckpoint(checkpoint_id=CheckpointId(self._next_id), request=request)
        self._next_id += 1
        self._all[pending.checkpoint_id] = pending
        self._outbox.add(contract.SetTimer(timer=pending.timeout, delay_ms=self._timeout_ms))
        self._outbox.add(
            contract.PrepareDirectory(
                checkpoint_id=pending.checkpoint_id, kind=request.kind, target=request.target
            )
        )
        self._history.opened(pending, self.now_ms)
        return pending

    def came_too_late(self, checkpoint_id: CheckpointId, directory: str | None) -> None:
        """The directory of one that was given up has a name now (None: it will have none)."""
        if checkpoint_id in self._abandoned:
            self._abandoned.discard(checkpoint_id)
            if directory is not None:
                self._outbox.add(contract.DiscardSnapshot(directory))

    def triggered(self, pending: PendingCheckpoint) -> None:
        """Its directory has a name."""
        self._outbox.add(contract.RecordCheckpoint(self._history.in_progress(pending, self.now_ms)))

    def acked(self, pending: PendingCheckpoint, ack: CheckpointAcked) -> None:
        pending.acks[ack.attempt.subtask] = ack
        self._history.acked(pending, ack, self.now_ms)

    def completed(self, pending: PendingCheckpoint) -> None:
        """Its manifest is durable. One that is not needed any more is discarded; of a drain both exist, or
        neither: the resumable one is of no use without the terminal one."""
        del self._all[pending.checkpoint_id]
        pending.is_durable = True
        if pending.triggers:
            self._sources.release()
        if pending.orphaned:
            self._fail(pending, FailureReason.CHECKPOINT_COORDINATOR_SUSPEND, "its drain was given up")
        elif not pending.is_resumable_half:
            for one in (pending.partner, pending):
                if one is not None:
                    self._outbox.add(contract.RecordCheckpoint(self._history.completed(one, self.now_ms)))

    def drop_both(
        self,
        pending: PendingCheckpoint,
        reason: FailureReason,
        detail: str,
        *,
        discard: bool = True,
        named: bool = True,
    ) -> None:
        """Ends one without success, and the other half of a drain with it.

        `discard` False: it may exist on the storage. `named` False: it has and will get no directory.
        """
        partner, pending.partner = pending.partner, None
        self.drop(pending, reason, detail, discard=discard, named=named)
        if partner is None:
            return
        partner.partner = None
        if partner.checkpoint_id in self._all and partner.phase is CheckpointPhase.FINALIZING:
            partner.orphaned = True
        elif partner.checkpoint_id in self._all:
            self.drop(partner, reason, detail)
        elif partner.is_durable:
            self._fail(partner, reason, detail, discard=discard)

    def drop(
        self,
        pending: PendingCheckpoint,
        reason: FailureReason,
        detail: str,
        *,
        discard: bool = True,
        named: bool = True,
    ) -> None:
        """Ends one without success, and cleans up behind it."""
        del self._all[pending.checkpoint_id]
        self._outbox.add(contract.CancelTimer(pending.timeout))
        if pending.directory is None and named:
            self._abandoned.add(pending.checkpoint_id)
        if pending.phase is CheckpointPhase.DELIVERING or pending.triggers:
            self._sources.release()
        latest = self._completed.latest
        self._notifications.aborted(pending, latest.checkpoint_id if latest is not None else None)
        self._fail(pending, reason, detail, discard=discard)

    def _fail(
        self, pending: PendingCheckpoint, reason: FailureReason, detail: str, *, discard: bool = True
    ) -> None:
        text = f"{reason.value}: {detail}"
        self._outbox.add(contract.RecordCheckpoint(self._history.failed(pending, text, self.now_ms)))
        if discard:
            self._discard(pending)
        else:
            self._undecided.add(pending.checkpoint_id)
            self._completed.may_exist(pending.written)

    def _discard(self, pending: PendingCheckpoint) -> None:
        if pending.directory is not None and not self._completed.is_fenced:
            if pending.kind is SnapshotKind.CHECKPOINT and not pending.is_fully_acked:
                self._completed.given_up(pending.directory)
            acked = (ack.snapshot for ack in pending.acks.values())
            shared = self._completed.unneeded_of(pending.checkpoint_id, acked)
            self._outbox.add(contract.DiscardSnapshot(pending.directory, shared=shared))

    def discard_completed(self, directory: str) -> None:
        """A completed snapshot has made way for newer ones."""
        self._history.discarded(directory)
        unneeded = self._completed.unneeded_with(directory)
        self._outbox.add(contract.DiscardSnapshot(directory, shared=unneeded.files, sweep=unneeded.sweep))

    def sweep(self, before: CheckpointId | None = None) -> None:
        """Looks for files that tasks have stored and no checkpoint names; see `CompletedSnapshots.sweep`."""
        sweep = self._completed.sweep(before)
        if sweep is not None:
            self._outbox.add(contract.DiscardSnapshot("", sweep=sweep))

    def acked_too_late(self, ack: CheckpointAcked) -> None:
        """Removes the shared files of the acknowledgement, unless its snapshot is pending or may exist."""
        if ack.checkpoint_id in self._all or ack.checkpoint_id in self._undecided:
            return
        shared = self._completed.unneeded_of(ack.checkpoint_id, [ack.snapshot])
        if shared:
            self._outbox.add(contract.DiscardSnapshot("", shared=shared))

    def validate(self) -> None:
        """Invariants I6 (ids grow), manifest only after every acknowledgement, and one at a time of what
        happens one at a time."""
        latest = self._completed.latest
        assert latest is None or latest.checkpoint_id < self._next_id, "an id was given out twice"
        assert list(self._all) == sorted(self._all), "out of order"
        assert all(n < self._next_id for n in self._all), "an id was given out twice"
        finalizing = [p for p in self if p.phase is CheckpointPhase.FINALIZING]
        assert len(finalizing) <= 1, "two manifests at a time"
        assert all(p.is_fully_acked for p in finalizing), "a manifest before every acknowledgement"
        starting = [p for p in self if p.is_starting and not p.is_resumable_half]
        assert len(starting) <= 1, "two snapshots are being started"
        checkpoints = [p.checkpoint_id for p in self if p.kind is SnapshotKind.CHECKPOINT]
        assert latest is None or all(n > latest.checkpoint_id for n in checkpoints), "subsumed, not given up"

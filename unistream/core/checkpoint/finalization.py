"""The last step of a snapshot: its manifest is written, by which it exists.

    TRIGGERED ── all acknowledged ──► FINALIZING ── durable ──► complete
                                        │    ▲
                                        └────┘ outcome unknown: written again, `MANIFEST_TRIES` times

What has started FINALIZING is never aborted before the storage answers: only the storage knows whether it
exists.
"""

from __future__ import annotations

from typing import Final

from unistream.core import contract
from unistream.core.checkpoint.pending import CheckpointPhase, PendingCheckpoint
from unistream.core.checkpoint.pendings import PendingSnapshots
from unistream.core.checkpoint.result import PartialFinishingNotSupported
from unistream.core.checkpoint.start import Obstacle
from unistream.core.checkpoint.store import CompletedSnapshots, SharedFileGone
from unistream.core.contract import CommandOutbox, JobSettings
from unistream.model.failure_reason import FailureReason
from unistream.model.graph import JobGraph

MANIFEST_TRIES: Final = 3  # the storage has its own timeouts


class Finalization:
    """Writes manifests, one at a time."""

    def __init__(
        self,
        settings: JobSettings,
        outbox: CommandOutbox,
        pendings: PendingSnapshots,
        completed: CompletedSnapshots,
    ) -> None:
        self._settings = settings
        self._outbox = outbox
        self._pendings = pendings
        self._completed = completed

    def write_next(self, graph: JobGraph) -> Obstacle | None:
        """Writes the manifest that is due, if there is one."""
        pending = self._pendings.next_to_finalize()
        if pending is None:
            return None
        try:
            pending.manifest(self._settings, graph, self._completed.resolved)
        except PartialFinishingNotSupported as error:  # possible again when all of them have ended
            return Obstacle(pending, FailureReason.CHECKPOINT_DECLINED_TASK_CLOSING, str(error))
        except SharedFileGone as error:
            return Obstacle(pending, FailureReason.FINALIZE_CHECKPOINT_FAILURE, str(error))
        pending.phase = CheckpointPhase.FINALIZING
        self._outbox.add(contract.CancelTimer(pending.timeout))
        self._write(pending)
        return None

    def failed(self, event: contract.ManifestFailed) -> Obstacle | None:
        """The write failed: it is repeated, or the snapshot is aborted."""
        pending = self._pendings.within(event.checkpoint_id, CheckpointPhase.FINALIZING)
        if pending is None:
            return None
        if event.unknown and pending.manifest_tries < MANIFEST_TRIES:
            pending.manifest_tries += 1
            self._write(pending)
            return None
        if event.fenced:
            self._completed.fenced()
        may_exist = event.fenced or event.unknown or pending.manifest_tries > 1
        reason = FailureReason.FINALIZE_CHECKPOINT_FAILURE
        return Obstacle(pending, reason, event.reason, may_exist=may_exist)

    def _write(self, pending: PendingCheckpoint) -> None:
        self._outbox.add(contract.WriteManifest(directory=pending.directory or "", manifest=pending.written))

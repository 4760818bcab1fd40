"""Storage access and split discovery of one job, in a pool; each outcome is posted as an event."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from unistream.base.crash_points import crash_point
from unistream.base.errors import ConfigError, Fenced, Transient, UnistreamError, Unreachable
from unistream.base.ids import CheckpointId, JobId
from unistream.core import contract
from unistream.master.job.job_setup import JobSetup
from unistream.master.loop import InOrder, WorkPool
from unistream.master.service import ClusterServices
from unistream.master.store import SnapshotPointers
from unistream.model.messages import TaskFailure
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.splits import FoundSplits
from unistream.model.stored_job import CheckpointPointer, TotalsSoFar
from unistream.port.source import GrowingDiscovery
from unistream.port.storage import CheckpointStorage

Request = contract.DiscoverSplits | contract.PrepareDirectory | contract.WriteManifest

LEFT_MAX: Final = 1_000  # removals that a storage has refused; more come only while it is away for long
POINTING_MAX: Final = 16  # more manifests are never on their way to the storage

logger = logging.getLogger(__name__)


class JobIo:
    """The blocking work of one JobMaster. `post` takes the outcomes."""

    def __init__(
        self,
        setup: JobSetup,
        services: ClusterServices,
        pointers: SnapshotPointers,
        pool: WorkPool,
        post: Callable[[contract.Event], None],
        *,
        totals: Callable[[], TotalsSoFar],
    ) -> None:
        """`totals`: of the job, with the snapshot whose manifest is to be written; called on its thread."""
        self._job = setup.job
        self._storage = setup.storage
        self._pointers = pointers
        self._pool = pool
        self._discards = InOrder(pool)
        self._left: list[contract.DiscardSnapshot] = []  # changed by what is in order only
        self._is_clean = False
        self._create_discovery = services.discover
        self._clock = services.clock
        self._post = post
        self._totals = totals
        self._pointing: dict[CheckpointId, TotalsSoFar] = {}
        self._preparing: list[Future[None]] = []

    def start(self, request: Request) -> None:
        """Returns at once."""
        if isinstance(request, contract.WriteManifest):
            self._pool.submit(self._write_it, request, self._totals_with(request.manifest.checkpoint_id))
        else:
            future = self._pool.submit(self._perform, request)
            if isinstance(request, contract.PrepareDirectory):
                self._preparing = [one for one in (*self._preparing, future) if not one.done()]

    def _totals_with(self, checkpoint_id: CheckpointId) -> TotalsSoFar:
        """The totals that go into this checkpoint's pointer. They stay the same when a write of unknown
        outcome is repeated: a pointer never changes."""
        if checkpoint_id not in self._pointing:
            self._pointing[checkpoint_id] = self._totals()
            while len(self._pointing) > POINTING_MAX:
                del self._pointing[next(iter(self._pointing))]
        return self._pointing[checkpoint_id]

    @property
    def preparing(self) -> list[Future[None]]:
        """Directories of snapshots that may still be made."""
        return list(self._preparing)

    def discard(self, command: contract.DiscardSnapshot) -> Future[None]:
        """Removes a snapshot that nothing needs. Returns at once.

        One at a time, since files shared with an older snapshot are removed after that snapshot. One that the
        storage refuses (it is away) is logged, and removed before the next one, or at the end of the job.
        """
        return self._discards.submit(self._discard, command)

    def forget(self) -> Future[None]:
        """The job has ended: removes its folder if it is empty after all discards. A failure is logged.
        Returns at once."""
        return self._discards.submit(self._forget)

    @property
    def left(self) -> tuple[contract.DiscardSnapshot, ...]:
        """What could not be removed so far, the oldest first."""
        return tuple(self._left)

    @property
    def is_clean(self) -> bool:
        """`forget` has removed all that the storage may still refuse."""
        return self._is_clean

    def _perform(self, request: contract.DiscoverSplits | contract.PrepareDirectory) -> None:
        match request:
            case contract.DiscoverSplits():
                event = self._discover(request)
            case contract.PrepareDirectory():
                event = self._prepare(request)
        self._post(event)

    def _write_it(self, request: contract.WriteManifest, totals: TotalsSoFar) -> None:
        self._post(self._write(request, totals))

    def _discover(self, command: contract.DiscoverSplits) -> contract.Event:
        try:
            found = self._find(command)
        except Exception as error:
            failure = TaskFailure(
                kind=type(error).__name__,
                message=str(error),
                traceback="" if isinstance(error, UnistreamError) else traceback.format_exc(),
                recoverable=not isinstance(error, ConfigError),
            )
            logger.warning("event=discovery_failed job=%s reason=%r", self._job, _text(error))
            return contract.DiscoveryFailed(vertex=command.vertex, failure=failure, number=command.number)
        return contract.SplitsDiscovered(
            vertex=command.vertex,
            splits=found.splits,
            origin=found.origin,
            position=found.position,
            origins=found.origins,
            number=command.number,
        )

    def _find(self, command: contract.DiscoverSplits) -> FoundSplits:
        discovery = self._create_discovery(command.source)
        try:
            if isinstance(discovery, GrowingDiscovery):
                return discovery.find(command.known)
            return FoundSplits(splits=tuple(discovery.discover()))
        finally:
            discovery.close()

    def _prepare(self, command: contract.PrepareDirectory) -> contract.Event:
        checkpoint_id = command.checkpoint_id
        try:
            self._pointers.begun(checkpoint_id)
            directory = self._storage.directory(self._job, checkpoint_id, command.kind, command.target)
        except Fenced as error:
            return contract.LeadershipLost(reason=_text(error))
        except Exception as error:
            return contract.DirectoryFailed(checkpoint_id=checkpoint_id, reason=_text(error))
        timestamp_ms = self._clock.wall_ms()
        return contract.DirectoryReady(
            checkpoint_id=checkpoint_id, directory=directory, timestamp_ms=timestamp_ms
        )

    def _write(self, command: contract.WriteManifest, totals: TotalsSoFar) -> contract.Event:
        checkpoint_id = command.manifest.checkpoint_id
        crash_point("manifest.before_create")
        try:
            self._storage.write_manifest(command.directory, command.manifest)
            crash_point("manifest.created")
            self._point_to(command, totals)
        except Fenced as error:
            return contract.ManifestFailed(checkpoint_id=checkpoint_id, reason=_text(error), fenced=True)
        except Transient as error:
            unknown = isinstance(error, Unreachable)  # other transient failures say: not written
            return contract.ManifestFailed(checkpoint_id=checkpoint_id, reason=_text(error), unknown=unknown)
        except Exception as error:  # OutcomeUnknown, or any error that does not mean "not written"
            logger.warning("event=manifest_outcome_unknown directory=%s reason=%r", command.directory, error)
            return contract.ManifestFailed(checkpoint_id=checkpoint_id, reason=_text(error), unknown=True)
        if command.tidies:
            self._tidy(command)
        return contract.ManifestDurable(checkpoint_id=checkpoint_id)

    def _point_to(self, command: contract.WriteManifest, totals: TotalsSoFar) -> None:
        """Stores the pointer from which the job restarts, from now on. A plain savepoint is its user's
        alone."""
        manifest = command.manifest
        if manifest.kind is not SnapshotKind.SAVEPOINT:
            pointer = CheckpointPointer(
                checkpoint_id=manifest.checkpoint_id,
                kind=manifest.kind,
                directory=command.directory,
                totals=totals,
            )
            self._pointers.completed(pointer)

    def _tidy(self, command: contract.WriteManifest) -> None:
        try:
            self._storage.tidy_savepoint(command.directory, command.manifest)
        except Exception:  # leftover files cost space, not correctness
            logger.exception("event=savepoint_not_tidied directory=%s", command.directory)

    def _discard(self, command: contract.DiscardSnapshot) -> None:
        self._left = [*self._left, command][-LEFT_MAX:]
        self._remove_left()

    def _remove_left(self) -> None:
        """Removes the snapshots that are to be discarded, in order; all behind one that the storage refuses
        wait with it."""
        while self._left:
            command = self._left[0]
            crash_point("retention.before_delete")
            try:
                self._pointers.removed(command.directory)
                remove_snapshot(self._storage, self._job, command)
            except Transient as error:
                where = command.directory or self._job
                logger.warning("event=snapshot_not_discarded directory=%s reason=%r", where, error)
                return
            except Exception:  # leftover files cost space, not correctness
                logger.exception("event=snapshot_not_discarded directory=%s", command.directory)
            self._left = self._left[1:]
            crash_point("retention.deleted")

    def _forget(self) -> None:
        self._remove_left()
        try:
            self._storage.forget(self._job)
        except Transient as error:
            logger.warning("event=job_folder_not_removed job=%s reason=%r", self._job, error)
            return
        except Exception:  # an empty folder does no harm
            logger.exception("event=job_folder_not_removed job=%s", self._job)
        self._is_clean = not self._left


def remove_snapshot(storage: CheckpointStorage, job: JobId, command: contract.DiscardSnapshot) -> None:
    """Removes what `command` names, which nothing points to. Raises as the storage; may be repeated."""
    if command.directory:
        storage.discard(command.directory, command.shared)
    elif command.shared:
        storage.discard_shared(job, command.shared)
    if command.sweep is not None:
        storage.clean_shared(command.sweep.next_to, command.sweep.before)


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, UnistreamError) else f"{type(error).__name__}: {error}"

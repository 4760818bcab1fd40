"""The blocking partitions of one TaskManager: files of tasks that have ended, for consumers that come later.

A partition is kept until the master releases it, its attempt is cancelled, its job ends, or this process
ends. All are stored in a private, locked folder: the next worker with the same temporary folder removes those
of killed processes.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from unistream.base.errors import ConfigError
from unistream.base.ids import AttemptId, EdgeId, JobId, TaskManagerId
from unistream.model.deployment import ChannelDescriptor, PartitionDescriptor
from unistream.net.folder import PrivateFolder, remove_stale_folders
from unistream.worker.exchange.blocking_partition import SPILL_BYTES, BlockingPartition
from unistream.worker.exchange.blocking_view import BlockingView
from unistream.worker.exchange.bucketed_partition import BucketedPartition
from unistream.worker.exchange.host_local import SPILL_FOLDER_PREFIX, HostLocalPartitions, folder_prefix
from unistream.worker.exchange.local_folder import renewed_folder
from unistream.worker.exchange.sealed_partition import SealedPartition, partition_name

PartitionKey = tuple[AttemptId, EdgeId]


class BlockingPartitions:
    """Thread-safe.

    Args:
        roots: Existing folders (io.tmp.dirs); partitions are spread over them.
        task_manager: Whose they are; None: no other process finds them.

    Attributes:
        on_sealed: Called when a partition can be read, by the producer's thread.
    """

    def __init__(self, roots: Sequence[Path], task_manager: TaskManagerId | None = None) -> None:
        assert roots, "there is always a temporary folder"
        self._roots = tuple(roots)
        self._prefix = SPILL_FOLDER_PREFIX if task_manager is None else folder_prefix(task_manager)
        self._lock = threading.Lock()
        self._folders: dict[Path, PrivateFolder] = {}
        self._numbers = itertools.count()
        self._sealed: dict[PartitionKey, SealedPartition] = {}
        self._closed = False
        self.on_sealed: Callable[[PartitionKey], None] | None = None

    def remove_leftovers(self) -> None:
        """Removes folders of killed processes. Another user's are left to their owner."""
        for root in self._roots:
            remove_stale_folders(root, SPILL_FOLDER_PREFIX)

    # --- producer ---------------------------------------------------------------------------------

    def create(
        self, attempt: AttemptId, descriptor: PartitionDescriptor, spill_bytes: int = SPILL_BYTES
    ) -> BlockingPartition:
        """A new, empty partition. `spill_bytes`: rows that it gathers before it writes them.

        Raises:
            ConfigError: the temporary folder cannot be written, or this TaskManager is shutting down.
            Transient: it cannot be written now.
        """
        private = self._private(self._roots[next(self._numbers) % len(self._roots)])
        folder = private / partition_name(attempt, descriptor.edge)
        kind = BucketedPartition if descriptor.buckets else BlockingPartition
        return kind(attempt, descriptor, folder, self._add, spill_bytes=spill_bytes)

    def _private(self, root: Path) -> Path:
        with self._lock:
            if self._closed:
                raise ConfigError("this TaskManager is shutting down and accepts no more output")
            former = self._folders.get(root)
            if former is None or not former.is_there:
                self._folders[root] = renewed_folder(root, self._prefix, former)
            return self._folders[root].path

    def _add(self, sealed: SealedPartition) -> None:
        key = (sealed.attempt, sealed.edge)
        with self._lock:
            self._sealed[key] = sealed
        if self.on_sealed is not None:
            self.on_sealed(key)

    # --- consumers --------------------------------------------------------------------------------

    def open_subpartition(
        self, channel: ChannelDescriptor, listener: Callable[[], None]
    ) -> BlockingView | None:
        """A new reader, from the beginning; there may be several. None: unknown partition."""
        with self._lock:
            sealed = self._sealed.get((channel.producer, channel.edge))
        if sealed is None or not 0 <= channel.subpartition < len(sealed.files):
            return None
        view = BlockingView(sealed, channel.subpartition)
        listener()
        return view

    def of_others_here(self) -> HostLocalPartitions:
        """The partitions that other workers of this machine have stored in the same folders, as of now."""
        return HostLocalPartitions(self._roots)

    def __contains__(self, key: PartitionKey) -> bool:
        with self._lock:
            return key in self._sealed

    @property
    def held(self) -> tuple[PartitionKey, ...]:
        """All sealed partitions."""
        with self._lock:
            return tuple(self._sealed)

    @property
    def jobs(self) -> tuple[JobId, ...]:
        """The jobs of all partitions that end with their job, sorted."""
        with self._lock:
            return tuple(
                sorted({key[0].job for key, sealed in self._sealed.items() if not sealed.persistent})
            )

    # --- ends -------------------------------------------------------------------------------------

    def detach(self, partitions: Iterable[PartitionKey]) -> list[SealedPartition]:
        """Removes them from the table; unknown ones are ignored. The caller deletes the files, which may take
        long."""
        with self._lock:
            found = [self._sealed.pop(key, None) for key in partitions]
        return [sealed for sealed in found if sealed is not None]

    def detach_attempt(self, attempt: AttemptId) -> list[SealedPartition]:
        return self.detach([key for key in self.held if key[0] == attempt])

    def detach_job(self, job: JobId) -> list[SealedPartition]:
        """All of one job, except persistent ones; see `detach`."""
        with self._lock:
            keys = [
                key for key, sealed in self._sealed.items() if key[0].job == job and not sealed.persistent
            ]
        return self.detach(keys)

    def close(self) -> None:
        """Deletes everything. May be called again."""
        with self._lock:
            self._closed = True
            self._sealed.clear()
            folders = list(self._folders.values())
            self._folders.clear()
        for folder in folders:
            folder.close()


def spill_roots(directories: str | None, default: str) -> list[Path]:
    """The folders that io.tmp.dirs names, separated by commas or colons; `default` where it names none."""
    names = [name.strip() for name in (directories or "").replace(":", ",").split(",")]
    return [Path(name) for name in names if name] or [Path(default)]

"""Blocking partitions of other workers on this machine, read from their files instead of through sockets.

    gate ──(stored channel of another worker)──► its folder below io.tmp.dirs?
                                                  ├─ found, complete ─► read from the files, as its own
                                                  └─ not here, or not readable ─► by the network

The same as Spark's `spark.shuffle.readHostLocalDisk`. A row through the socket costs 0.2 us of processor
time, in gRPC and two threads. The producer's worker need not be asked.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from unistream.base.errors import ProtocolError
from unistream.base.ids import TaskManagerId
from unistream.model.deployment import ChannelDescriptor
from unistream.worker.exchange.blocking_view import BlockingView
from unistream.worker.exchange.sealed_partition import (
    SealedPartition,
    name_of,
    partition_name,
    read_index,
)

SPILL_FOLDER_PREFIX: Final = "unistream-spill-"

_log = logging.getLogger(__name__)


def folder_prefix(task_manager: TaskManagerId) -> str:
    """That of the private folders in which this worker stores partitions."""
    return f"{SPILL_FOLDER_PREFIX}{name_of(task_manager)}-"


class HostLocalPartitions:
    """One look at this machine's folders.

    Args:
        roots: Where workers here have their folders (io.tmp.dirs).
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = roots

    def find(self, channel: ChannelDescriptor) -> HostLocalPartition | None:
        """The partition that the channel reads; None: it is not here, or not for us to read."""
        prefix, name = folder_prefix(channel.task_manager), partition_name(channel.producer, channel.edge)
        for folder in self._folders:
            if not folder.name.startswith(prefix):
                continue
            try:
                sealed = read_index(folder / name)
            except FileNotFoundError:
                continue  # of a worker with the same id that has ended, or not stored here
            except (OSError, ProtocolError) as error:
                _log.warning("event=host_local_input_refused partition=%s reason=%r", folder / name, error)
                continue
            if 0 <= channel.subpartition < len(sealed.files):
                return HostLocalPartition(sealed)
        return None

    @cached_property
    def _folders(self) -> Sequence[Path]:
        return [folder for root in self._roots for folder in _private_folders(root)]


def _private_folders(root: Path) -> Iterator[Path]:
    """The folders of this user in which nobody else writes: temporary folders are open to all."""
    try:
        with os.scandir(root) as entries:
            for entry in entries:
                if entry.name.startswith(SPILL_FOLDER_PREFIX) and _is_private(entry):
                    yield Path(entry.path)
    except OSError as error:
        _log.warning("event=host_local_input_refused folder=%s reason=%r", root, error)


def _is_private(entry: os.DirEntry[str]) -> bool:
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:  # its worker has just ended
        return False
    is_own = found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return stat.S_ISDIR(found.st_mode) and is_own


class HostLocalPartition:
    """Implements `channels.LocalPartitions`. A reader of a deleted partition fails with PartitionLost."""

    def __init__(self, sealed: SealedPartition) -> None:
        self._sealed = sealed

    def open_subpartition(self, channel: ChannelDescriptor, listener: Callable[[], None]) -> BlockingView:
        listener()
        return BlockingView(self._sealed, channel.subpartition)

    def when_registered(self, channel: ChannelDescriptor, listener: Callable[[], None]) -> None:
        """Does nothing: the partition is registered."""

"""`port.ha.HaStore` in a local folder.

    <folder>/cluster                what wrote this, and its format
    <folder>/epoch                  the epoch of the newest leader; its lock is held during each write
    <folder>/leader                 where the leader is reached
    <folder>/values/jobs/3f/job/.value      the value of ``jobs/3f/job``: version and checksum, then the
                                            bytes

Each value is replaced by `rename`, so that a kill leaves the old one or the new one. What is removed is first
renamed, so that a kill leaves nothing half removed; leftovers go with the next leader.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import crc32c
import msgspec

from unistream.base import durable_files
from unistream.base.crash_points import crash_point
from unistream.base.errors import (
    UNDECODABLE,
    ConfigError,
    CorruptSnapshot,
    Fenced,
    OutcomeUnknown,
    Unreachable,
)
from unistream.base.ids import LeaderEpoch
from unistream.ha.marker import PRODUCT, ClusterMarker
from unistream.ha.names import check_value, components
from unistream.port.ha import HaEntry
from unistream.port.storage import Created

FORMAT: Final = 1
LOCK_TIMEOUT_S: Final = 10.0  # a write of another process is over in milliseconds
LOCK_PAUSE_S: Final = 0.005
TURN_TIMEOUT_S: Final = 60.0  # for hundreds of jobs that write at once, to a slow disk
_VALUE: Final = ".value"
_REMOVED: Final = ".removed"
_HEADER: Final = re.compile(rb"^unistream-ha (\d+) version=(\d+) crc32c=([0-9a-f]{8})$")
_WRITES_BITS: Final = 32  # of a version, for the number of a leader's write


def claim_folder(folder: Path) -> LeaderEpoch:
    """Makes the folder if it is new, and fences all earlier leaders; the epoch of the new one.

    Raises:
        ConfigError: it has foreign data, or that of a newer version, or cannot be written; nothing was
            changed.
        Unreachable: another process does not let go of it.
    """
    try:
        _check_marker(folder)
        durable_files.make_folders(folder / "values")
        durable_files.create(str(folder / "epoch"), b"0\n")
        with _locked(folder) as (epoch, handle):
            os.pwrite(handle, b"%d\n" % (epoch + 1), 0)  # one page: all of it or nothing
            os.fsync(handle)
            for leftover in folder.glob(f"{_REMOVED}*"):
                shutil.rmtree(leftover)
            return LeaderEpoch(epoch + 1)
    except OSError as error:
        raise ConfigError(
            f"cannot keep the jobs of the cluster in {folder}: {error.strerror}; choose another folder"
        ) from error


class FolderHaStore:
    """See the module. `epoch`: of `claim_folder`. The version of a value is made of the epoch and the number
    of the leader's write, so it grows also when a name is removed and created again."""

    def __init__(self, folder: Path, epoch: LeaderEpoch) -> None:
        self._writes = 0  # its lock is that of the epoch's file
        self._turn = threading.Lock()  # of this process's threads, which need not poll for that one
        self._folder = folder
        self._values = folder / "values"
        self._epoch = epoch

    @property
    def epoch(self) -> LeaderEpoch:
        return self._epoch

    def leads(self) -> bool:
        """See the port. Nobody takes the lock of a folder away."""
        return True

    def read(self, name: str) -> HaEntry | None:
        """See the port."""
        return self._stored(self._path(name))

    def children(self, name: str) -> Sequence[str]:
        """See the port."""
        path = self._values if not name else self._path(name)
        try:
            with os.scandir(path) as entries:
                return sorted(entry.name for entry in entries if _has_value(entry))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise Unreachable(f"cannot list {path}: {error}") from error

    def create(self, name: str, value: bytes) -> Created:
        """See the port."""
        path = self._path(name)
        check_value(name, value)
        with self._writing():
            there = self._stored(path)
            if there is not None and there.value != value:
                raise Fenced(f"another value is stored for {name!r}; nothing was changed")
            if there is not None:
                return Created.EXISTS
            self._write(path, value)
            return Created.NEW

    def replace(self, name: str, value: bytes, version: int) -> int:
        """See the port."""
        path = self._path(name)
        check_value(name, value)
        with self._writing():
            there = self._stored(path)
            if there is None or there.version != version:
                stored = "nothing is stored" if there is None else f"version {there.version} is stored"
                raise Fenced(f"{stored} for {name!r}, not version {version}; nothing was changed")
            return self._write(path, value)

    def remove(self, name: str) -> None:
        """See the port."""
        path = self._path(name)
        with self._writing():
            aside = self._folder / f"{_REMOVED}-{os.urandom(8).hex()}"
            try:
                path.rename(aside)
            except FileNotFoundError:
                return
            except OSError as error:
                raise Unreachable(f"cannot remove {path}: {error}") from error
            crash_point("value.removed")
            try:
                self._sync_emptied(path.parent)
            except OSError as error:
                raise OutcomeUnknown(f"{path} may come back after a power cut: {error}") from error
            shutil.rmtree(aside, ignore_errors=True)  # else the next leader removes it

    def _sync_emptied(self, path: Path) -> None:
        """Names that held up only the removed one go, too."""
        while path != self._values and not any(path.iterdir()):
            path.rmdir()
            path = path.parent
        durable_files.sync(path)

    def publish(self, value: bytes) -> None:
        """Where the leader is reached. Raises as a write."""
        with self._writing():
            self._put(self._folder / "leader", value)

    def check(self) -> None:
        """See the port."""
        with self._writing():
            pass

    @contextmanager
    def _writing(self) -> Iterator[LeaderEpoch]:
        """Nobody else writes, and no newer leader exists."""
        if not self._turn.acquire(timeout=TURN_TIMEOUT_S):
            raise Unreachable(f"{self._folder}: other writes of this master take {TURN_TIMEOUT_S:.0f} s")
        try:
            with _locked(self._folder) as (newest, _):
                if newest != self._epoch:
                    raise Fenced(f"{self._folder}: epoch {newest} leads, {self._epoch} does not any more")
                yield self._epoch
        except FileNotFoundError as error:
            raise Fenced(f"{self._folder} was removed: {error}") from error
        except OSError as error:
            raise Unreachable(f"cannot use {self._folder}: {error}") from error
        finally:
            self._turn.release()

    def _write(self, path: Path, value: bytes) -> int:
        self._writes += 1
        version = (self._epoch << _WRITES_BITS) + self._writes
        checksum = crc32c.crc32c(value)
        self._put(
            path / _VALUE, b"unistream-ha %d version=%d crc32c=%08x\n" % (FORMAT, version, checksum) + value
        )
        return version

    def _put(self, path: Path, content: bytes) -> None:
        temporary = durable_files.temporary_of(path)
        try:
            durable_files.make_folders(path.parent)
            crash_point("value.folder_made")
            durable_files.write(temporary, content)
            crash_point("value.written")
            temporary.replace(path)
            crash_point("value.named")
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise Unreachable(f"cannot write {path}: {error.strerror}; nothing was changed") from error
        try:
            durable_files.sync(path.parent)
        except OSError as error:
            raise OutcomeUnknown(f"{path} may or may not survive a power cut: {error}") from error

    def _stored(self, path: Path) -> HaEntry | None:
        file = path / _VALUE
        try:
            content = file.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Unreachable(f"cannot read {file}: {error}") from error
        line, _, value = content.partition(b"\n")
        header = _HEADER.match(line)
        if header is None:
            raise CorruptSnapshot(f"{file} was not written by {PRODUCT}: it begins with {line[:60]!r}")
        form, version = int(header[1]), int(header[2])
        if form > FORMAT:
            raise CorruptSnapshot(f"{file} has format {form}, this version of {PRODUCT} reads {FORMAT}")
        if crc32c.crc32c(value) != int(header[3], 16):
            raise CorruptSnapshot(f"{file} does not match its checksum")
        return HaEntry(value, version)

    def _path(self, name: str) -> Path:
        return self._values.joinpath(*components(name))


def _check_marker(folder: Path) -> None:
    """Raises ConfigError for data that is not ours; a new folder gets its marker."""
    path = folder / "cluster"
    # before the marker, which comes first in a folder of ours: another may make it between the two looks
    others = sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        others = [name for name in others if not name.startswith(".cluster.")]
        if others:
            raise ConfigError(
                f"{folder} has files of something else ({', '.join(others[:3])}); choose another folder"
            ) from None
        durable_files.make_folders(folder)
        durable_files.create(str(path), msgspec.json.encode(ClusterMarker(PRODUCT, FORMAT)))
        return
    try:
        marker = msgspec.json.decode(content, type=ClusterMarker)
    except UNDECODABLE:
        raise ConfigError(f"{path} is not of {PRODUCT}: {content[:60]!r}; choose another folder") from None
    if marker.product != PRODUCT or marker.format > FORMAT:
        raise ConfigError(
            f"{folder} was written by {marker.product} in format {marker.format}; this version reads "
            f"{PRODUCT} up to format {FORMAT}: upgrade, or choose another folder"
        )


@contextmanager
def _locked(folder: Path) -> Iterator[tuple[int, int]]:
    """The epoch of the newest leader, and the open file, whose lock is held meanwhile."""
    path = folder / "epoch"
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        _lock(handle, path)
        text = os.pread(handle, 32, 0)
        if not text.strip().isdigit():
            raise CorruptSnapshot(f"{path} is not the epoch of a cluster: {text!r}")
        yield int(text), handle
    finally:
        os.close(handle)  # with its lock


def _lock(handle: int, path: Path) -> None:
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Unreachable(
                    f"{path}: another process has held its lock for {LOCK_TIMEOUT_S:.0f} s"
                ) from None
            time.sleep(LOCK_PAUSE_S)
        else:
            return


def _has_value(entry: os.DirEntry[str]) -> bool:
    """A name has a value, or one below it has. A folder without any is of a write that was cut off before its
    value was there, so it is no name: a job with such a result would be taken for ended."""
    if entry.name.startswith(".") or not entry.is_dir():
        return False
    try:
        with os.scandir(entry.path) as inside:
            return any(one.name == _VALUE or _has_value(one) for one in inside)
    except FileNotFoundError:  # removed meanwhile
        return False

"""Checkpoints and savepoints as directories of any fsspec store.

    <root>/<job id>/chk-<n>/            checkpoints, owned by the job
        state-<hint>-<random>           state files: written first, by workers, each under a new name
        _metadata                       the manifest: written last, by create-if-absent
    <target>/savepoint-<job>-<random>/  savepoints, owned by the user

A snapshot exists exactly if its manifest does. All files of a savepoint are in its own directory, which can
be moved or copied. The exclusive creation that fences two leaders is as strong as the store's: atomic on
local disks, in memory (one process) and on s3, gs and other stores whose fsspec client implements
`pipe_file(mode="create")` as a conditional put; on the rest it is check-then-write.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import nullcontext
from typing import Final

from fsspec import AbstractFileSystem

from unistream.base.durable_files import named_after
from unistream.base.errors import ConfigError, CorruptSnapshot, Fenced, OutcomeUnknown, Transient
from unistream.base.ids import CheckpointId, JobId
from unistream.base.limits import MIB
from unistream.base.object_stores import is_s3
from unistream.model.codec import decode_manifest, encode_manifest
from unistream.model.file_ref import stored_for
from unistream.model.manifest_files import referenced_files
from unistream.model.snapshot import Manifest
from unistream.model.snapshot_kind import SnapshotKind
from unistream.model.stored_rows import StoredRows
from unistream.port.storage import Created, StoredSnapshot
from unistream.storage import savepoint_folder
from unistream.storage.durable_local import DurableLocalFileSystem, NotWritten
from unistream.storage.location import Location, Pause, open_location, transient
from unistream.storage.probe import check_writable
from unistream.storage.state_files import (
    SHARED_FOLDER,
    missing,
    random_name,
    remove_shared,
    shared_folder,
    state_file,
)
from unistream.storage.stored_folders import keep_stored, new_stored_folder, stored_folders

MANIFEST_NAME: Final = "_metadata"
MANIFEST_BYTES_MAX: Final = 256 * MIB  # 10,000 subtasks with 20 KiB of inline state each, and room

_CHECKPOINT: Final = re.compile(r"^chk-([1-9][0-9]{0,18}|0)$")
_memory_create = threading.Lock()  # the memory store checks and then writes


class FsCheckpointStorage:
    """`unistream.port.storage.CheckpointStorage` below one root. Thread-safe.

    Args:
        root_url: Local path or URL; created when it is first needed.
        fs: The store, instead of the one that the URL names.
        pause: Waits some seconds before a read is repeated.

    Raises:
        ConfigError: the URL cannot be used.
    """

    def __init__(
        self,
        root_url: str,
        *,
        fs: AbstractFileSystem | None = None,
        pause: Pause = time.sleep,
    ) -> None:
        self._fs = fs
        self._pause = pause
        self._root = open_location(root_url, fs, pause)
        self._given_out: set[str] = set()
        self._claimed: dict[str, list[str]] = {}  # directory -> its own files

    def check_writable(self) -> None:
        check_writable(self._root)

    def directory(
        self, job: JobId, checkpoint_id: CheckpointId, kind: SnapshotKind, target: str | None
    ) -> str:
        """See the port. Without a `target`, savepoints are in ``<root>/savepoints``. A checkpoint's directory
        may exist (left by a failed attempt) if it has no manifest.

        Raises:
            ConfigError: the target cannot be used.
            Fenced: this checkpoint has already been completed by another leader.
            Transient: the store refused.
        """
        if kind.is_savepoint:
            parent = self._open(target) if target else self._root.below("savepoints")
            location = parent.below(f"savepoint-{job[:6]}-{random_name()}")
        else:
            location = self._of_job(job).below(f"chk-{checkpoint_id}")
            if location.below(MANIFEST_NAME).size() is not None:
                raise Fenced(f"checkpoint {checkpoint_id} of job {job} is already complete: {location.url}")
        with transient(f"cannot make the snapshot directory {location.url}"):
            location.fs.makedirs(location.path, exist_ok=not kind.is_savepoint)
        self._given_out.add(location.url)
        return location.url

    def begin_savepoint(self, directory: str) -> str:
        location = self._open(directory)
        savepoint_folder.begin(location, MANIFEST_NAME)
        return location.url

    def tidy_savepoint(self, directory: str, manifest: Manifest) -> None:
        location = self._open(directory)
        with transient(f"cannot remove files in {location.url}"):
            savepoint_folder.tidy(location, manifest)

    def write_manifest(self, directory: str, manifest: Manifest) -> Created:
        """See the port. A failed create is repeated once, which also shows whether it succeeded.

        Raises:
            Transient: it was not written (disk full, no such directory).
        """
        target = self._open(directory).below(MANIFEST_NAME)
        content = encode_manifest(manifest)
        try:
            return _create(target, content)
        except Fenced:
            raise
        except NotWritten as error:
            raise Transient(f"cannot write {target.url}: {error}") from error
        except Exception:  # each store's client has errors of its own
            return _ask_again(target, content)

    def read_manifest(self, directory: str) -> Manifest:
        """See the port. `directory` may come from a user, or be removed by its job while it is read."""
        location = self._open(directory)
        size = location.below(MANIFEST_NAME).size()
        if size is None:
            raise ConfigError(_why_no_snapshot(location))
        if size > MANIFEST_BYTES_MAX:
            raise CorruptSnapshot(f"{location.url}/{MANIFEST_NAME}: {size} B, limit {MANIFEST_BYTES_MAX} B")
        try:
            manifest = _read_manifest(location)
        except FileNotFoundError:
            raise ConfigError(_why_no_snapshot(location)) from None
        _check_files(location, manifest)
        return manifest

    def completed(self, job: JobId) -> Sequence[StoredSnapshot]:
        """See the port. An unreadable checkpoint is an error, never skipped: falling back to an older one
        would repeat output that was committed since (FLINK-22502).

        Raises:
            CorruptSnapshot: one of them is unreadable or in the wrong directory.
        """
        folder = self._of_job(job)
        snapshots = []
        for location in _completed_in(folder):
            manifest = self.read_manifest(location.url)
            if (manifest.job, manifest.checkpoint_id) != (job, _number(location.path)):
                raise CorruptSnapshot(
                    f"{location.url} holds checkpoint {manifest.checkpoint_id} of job {manifest.job}; "
                    "move it back"
                )
            snapshots.append(StoredSnapshot(location.url, manifest))
        return sorted(snapshots, key=lambda snapshot: snapshot.manifest.checkpoint_id)

    def directories(self, job: JobId) -> Sequence[str]:
        """See the port."""
        folder = self._of_job(job)
        return [folder.below(name).url for name in folder.names() if _CHECKPOINT.fullmatch(name)]

    def discard(self, directory: str, shared: Sequence[str] = ()) -> None:
        """See the port. Only directories that this storage made are removed recursively; of claimed ones only
        the files that their manifest names.

        Shared files stay if an older checkpoint that still exists names them (its own removal failed, or its
        outcome was unknown). `clean_shared` finds them later.

        Raises:
            CorruptSnapshot: an older checkpoint cannot be read; shared files stay.
            ConfigError: it is neither a checkpoint below the root nor made by this object nor claimed.
            Transient: not all of it could be removed; the manifest is removed, so it is no longer a snapshot.
        """
        location = self._open(directory)
        own, claimed = self._given_out, self._claimed.get(location.url)
        if claimed is None and location.url not in own and not self._is_checkpoint(location):
            raise ConfigError(f"refusing to remove {directory!r}: not a checkpoint below {self._root.url}")
        with transient(f"cannot remove {location.url}"):
            if claimed is None:
                _remove_directory(location)
                if location.is_local and self._is_checkpoint(location):
                    _remove_set_aside(Location(location.fs, location.path.rpartition("/")[0], self._pause))
            else:
                _remove_named(location, claimed)
            if shared:
                needed = _named_by_older(location)
                remove_shared(shared_folder(location), [name for name in shared if name not in needed])
        self._given_out.discard(location.url)
        self._claimed.pop(location.url, None)

    def claim(self, directory: str) -> None:
        named = referenced_files(self.read_manifest(directory))
        own = sorted({ref.path for ref in named if not ref.shared})
        self._claimed[self._open(directory).url] = own

    def discard_shared(self, job: JobId, files: Sequence[str]) -> None:
        of_job = self._of_job(job)
        folder = of_job.below(SHARED_FOLDER)
        with transient(f"cannot remove files in {folder.url}"):
            needed = _named_by(_completed_in(of_job))
            remove_shared(folder, [name for name in files if name not in needed])

    def clean_shared(self, directory: str, before: CheckpointId | None = None) -> int:
        """See the port. Raises Transient if not all of them could be removed."""
        location = self._open(directory)
        folder = shared_folder(location)
        parent = Location(location.fs, folder.path.rpartition("/")[0], self._pause)
        found = set(folder.files()) if folder.is_directory() else set()
        if not found:
            return 0
        checkpoints = _completed_in(parent)
        with transient(f"cannot look for unused files in {folder.url}"):
            needed = _named_by(checkpoints)
        if {one.path for one in _completed_in(parent)} != {one.path for one in checkpoints}:
            return 0  # checkpoints were added or removed meanwhile
        orphans = sorted(name for name in found - needed if _is_before(name, before))
        with transient(f"cannot remove files in {folder.url}"):
            remove_shared(folder, orphans)
        return len(orphans)

    def stored_folder(self, job: JobId) -> str:
        return new_stored_folder(self._of_job(job), random_name()).url

    def stored_folders(self, job: JobId) -> Sequence[str]:
        return [folder.url for folder in stored_folders(self._of_job(job))]

    def keep_stored(self, folders: Collection[str], rows: Collection[StoredRows]) -> None:
        for url in folders:
            keep_stored(self._open(url), rows)

    def forget(self, job: JobId) -> None:
        """See the port. A checkpoint that was starting when the job ended may have left an empty directory;
        on an object store, a task that was late for an aborted one may have left files.

        Raises:
            Transient: an empty folder, or such a file, could not be removed.
        """
        folder = self._of_job(job)
        for stored in stored_folders(folder):
            keep_stored(stored, ())
        if is_s3(folder.url):
            _remove_unfinished(folder)
        if not folder.is_local or not folder.is_directory():
            return
        with transient(f"cannot remove {folder.url}"):
            _remove_set_aside(folder)
            shown = (name for name in folder.names() if not name.startswith("."))
            for one in (*map(folder.below, shown), folder):
                if one.is_directory() and not one.names():
                    one.fs.rmdir(one.path)

    def _of_job(self, job: JobId) -> Location:
        if "/" in job:
            raise ConfigError(f"not a job id: {job!r}")
        return self._root.below(job)

    def _is_checkpoint(self, location: Location) -> bool:
        prefix = self._root.path.rstrip("/") + "/"
        parts = location.path.removeprefix(prefix).split("/")
        named = location.path.startswith(prefix) and len(parts) == 2 and _CHECKPOINT.fullmatch(parts[1])
        return bool(named) and self._root.contains(location)

    def _open(self, url: str) -> Location:
        return open_location(url, self._fs, self._pause)


def _completed_in(folder: Location) -> list[Location]:
    """Directories of completed checkpoints in a job's folder."""
    directories = (folder.below(name) for name in folder.names() if _CHECKPOINT.fullmatch(name))
    return [one for one in directories if one.below(MANIFEST_NAME).size() is not None]


def _is_before(name: str, checkpoint_id: CheckpointId | None) -> bool:
    """A file of a folder `shared`, possibly a hidden one, was stored for an older checkpoint."""
    number = stored_for(name.removeprefix("."))
    return checkpoint_id is None or (number is not None and number < checkpoint_id)


def _named_by_older(location: Location) -> set[str]:
    """Shared files of completed checkpoints with a lower number."""
    parent, _, own = location.path.rpartition("/")
    folder = Location(location.fs, parent, location.pause)
    return _named_by(one for one in _completed_in(folder) if _number(one.path) < _number(own))


def _named_by(checkpoints: Iterable[Location]) -> set[str]:
    return {ref.path for one in checkpoints for ref in referenced_files(_read_manifest(one)) if ref.shared}


def _number(path: str) -> int:
    """Id of the checkpoint in this directory; -1 for any other directory."""
    found = _CHECKPOINT.fullmatch(path.rpartition("/")[2])
    return -1 if found is None else int(found[1])


def _create(target: Location, content: bytes) -> Created:
    """Creates one object, or compares the existing one. Any OSError but NotWritten: unknown outcome."""
    memory_only = _memory_create if target.is_memory else nullcontext()
    try:
        with memory_only:
            target.fs.pipe_file(target.path, content, mode="create")
    except FileExistsError:
        if target.read() == content:
            return Created.EXISTS
        raise Fenced(f"{target.url} was written by another leader") from None
    return Created.NEW


def _ask_again(target: Location, content: bytes) -> Created:
    """Creates a file again whose create had an unknown outcome, which shows it: a name is given only once."""
    try:
        return _create(target, content)
    except Fenced:
        raise
    except Exception as error:
        raise OutcomeUnknown(f"{target.url} may or may not have been written: {error}") from error


def _read_manifest(location: Location) -> Manifest:
    target = location.below(MANIFEST_NAME)
    try:
        return decode_manifest(target.read())
    except CorruptSnapshot as error:
        raise CorruptSnapshot(f"{target.url}: {error}") from error


def _check_files(location: Location, manifest: Manifest) -> None:
    own, shared = location.files(), None
    for ref in referenced_files(manifest):
        target = state_file(location, ref)
        if ref.shared and shared is None:
            shared = shared_folder(location).files()
        size = (shared if ref.shared and shared is not None else own).get(ref.path)
        if size is None:
            raise missing(target)
        if size != ref.size:
            raise CorruptSnapshot(f"{target.url} has {size} B instead of {ref.size} B: it is truncated")


def _why_no_snapshot(location: Location) -> str:
    if location.path.rstrip("/").endswith("/" + MANIFEST_NAME):
        return f"{location.url}: name the directory of the snapshot, not its {MANIFEST_NAME} file"
    if location.size() is not None:
        return f"{location.url} is a file; name the directory of a checkpoint or savepoint"
    if not location.is_directory():
        what = "directory, or its bucket," if is_s3(location.url) else "directory"
        return f"there is no checkpoint or savepoint at {location.url}: the {what} does not exist"
    inside = [name for name in location.names() if name.startswith(("chk-", "savepoint-"))]
    hint = f"; it contains {', '.join(inside[:5])}: name one of these" if inside else ""
    return f"{location.url} is not a completed checkpoint or savepoint: it has no {MANIFEST_NAME} file{hint}"


# --- removal: the manifest first, since a directory that is half removed is not a snapshot -----------


def _remove_directory(location: Location) -> None:
    """Removes a directory that this storage made, recursively. Absent is fine.

    A local one is renamed first: a task that was not notified yet may still be writing into it.

    Raises:
        OSError: not all of it could be removed; the manifest is removed first.
    """
    if is_s3(location.url):
        _remove_objects(location)
        return
    _remove_manifest(location)
    if location.is_directory():
        fs, path = location.fs, location.path
        if isinstance(fs, DurableLocalFileSystem):
            path = fs.set_aside(path)
        fs.rm(path, recursive=True)


def _remove_objects(location: Location) -> None:
    """Removes a directory of an object store in three requests: what is there, the manifest, the rest (up to
    1,000 in each)."""
    found = location.files()
    manifest = location.below(MANIFEST_NAME)
    if MANIFEST_NAME in found:
        manifest.fs.rm_file(manifest.path)
    rest = [f"{location.path}/{name}" for name in found if name != MANIFEST_NAME]
    if rest:
        location.fs.rm(rest)


def _remove_unfinished(folder: Location) -> None:
    """Removes what a job that has ended has left of checkpoints without a manifest. Raises Transient."""
    found = folder.files()
    begun = {name.partition("/")[0] for name in found if _CHECKPOINT.fullmatch(name.partition("/")[0])}
    begun -= {name.partition("/")[0] for name in found if name.endswith(f"/{MANIFEST_NAME}")}
    left = [f"{folder.path}/{name}" for name in found if name.partition("/")[0] in begun]
    if left:
        with transient(f"cannot remove files in {folder.url}"):
            folder.fs.rm(left)


def _remove_set_aside(folder: Location) -> None:
    """What a removal that was killed has left in a job's folder: no other one finds it by its name."""
    for name in folder.names():
        if _CHECKPOINT.fullmatch(named_after(name) or ""):
            folder.fs.rm(f"{folder.path}/{name}", recursive=True)


def _remove_named(location: Location, files: Sequence[str]) -> None:
    """Removes a snapshot from a directory that may have other contents: its manifest, its files, and then
    empty folders (as in Flink, a claimed savepoint is not removed recursively). Absent is fine.

    Args:
        location: The directory.
        files: Relative paths, checked by the caller.

    Raises:
        OSError: not all of it could be removed; the manifest is removed first.
    """
    _remove_manifest(location)
    folders = {""}
    for name in files:
        target = location.below(name)
        if target.size() is not None:
            target.fs.rm_file(target.path)
        folder = name.rpartition("/")[0]
        while folder:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    for folder in sorted(folders, key=lambda path: (path.count("/"), len(path)), reverse=True):
        one = location.below(folder) if folder else location
        if one.is_directory() and not one.names():  # an object store has no empty directory
            one.fs.rmdir(one.path)


def _remove_manifest(location: Location) -> None:
    manifest = location.below(MANIFEST_NAME)
    if manifest.size() is not None:
        manifest.fs.rm_file(manifest.path)

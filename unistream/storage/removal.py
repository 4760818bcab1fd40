"""Removes snapshots: the manifest first, since a directory that is half removed is not a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from unistream.storage.durable_local import DurableLocalFileSystem
from unistream.storage.location import Location

MANIFEST_NAME: Final = "_metadata"


def remove_directory(location: Location) -> None:
    """Removes a directory that this storage made, recursively. Absent is fine.

    A local one is renamed first: a task that was not notified yet may still be writing into it.

    Raises:
        OSError: not all of it could be removed; the manifest is removed first.
    """
    _remove_manifest(location)
    if location.is_directory():
        fs, path = location.fs, location.path
        if isinstance(fs, DurableLocalFileSystem):
            path = fs.set_aside(path)
        fs.rm(path, recursive=True)


def remove_named(location: Location, files: Sequence[str]) -> None:
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

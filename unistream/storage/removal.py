"""How a snapshot goes: its manifest first, since a directory that is half removed is no snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from unistream.storage.durable_local import DurableLocalFileSystem
from unistream.storage.location import Location

MANIFEST_NAME: Final = "_metadata"


def remove_directory(location: Location) -> None:
    """Removes a directory that this storage has laid out, with all that is in it. Absent is fine.

    A task that was not told yet may still be writing into a local one, which could not be removed then: so it
    loses its name first.

    Raises:
        OSError: not all of it could be removed; the manifest is gone unless that was it.
    """
    _remove_manifest(location)
    if location.is_directory():
        fs, path = location.fs, location.path
        if isinstance(fs, DurableLocalFileSystem):
            path = fs.set_aside(path)
        fs.rm(path, recursive=True)


def remove_named(location: Location, files: Sequence[str]) -> None:
    """Removes a snapshot from a directory that somebody else has laid out, and may have put other things
    into: its manifest, the files that it names, and what is empty then (Flink: the directory of a claimed
    savepoint is not removed recursively). Absent is fine.

    Args:
        location: The directory.
        files: Relative paths; the caller has checked that they lead nowhere else.

    Raises:
        OSError: not all of it could be removed; the manifest is gone unless that was it.
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
        if one.is_directory() and not one.names():  # on object stores there is none, once nothing is in it
            one.fs.rmdir(one.path)


def _remove_manifest(location: Location) -> None:
    manifest = location.below(MANIFEST_NAME)
    if manifest.size() is not None:
        manifest.fs.rm_file(manifest.path)

"""The directory of a bootstrap's savepoint: the user names it, and several runs may have tried to write it.

    <directory>/bootstrap-<job id>/<uid>/<state>/part-….arrow    of one run; attempts of its tasks write there
    <directory>/_metadata                                        of the run that was complete first: the
    savepoint

Until `_metadata` exists nothing is removed, since another run may still be at work. When it exists no other
run can complete: all that it does not name is garbage.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

from unistream.base.errors import ConfigError
from unistream.base.ids import JobId
from unistream.model.manifest_files import referenced_files
from unistream.model.snapshot import Manifest
from unistream.storage.location import Location, transient

PREFIX: Final = "bootstrap-"
_OURS: Final = re.compile(rf"^\.?{PREFIX}[A-Za-z0-9._-]+$")
_UNFINISHED_MANIFEST: Final = "._metadata"  # of a writer that was killed


def state_folder_of(job: JobId) -> str:
    """Name of the folder of one run's state files."""
    return f"{PREFIX}{job}"


def begin(location: Location, manifest: str) -> None:
    """Makes the directory. What earlier runs left there stays for now.

    Raises:
        ConfigError: it has a savepoint, or files that are no bootstrap's.
        Transient: it could not be made.
    """
    if location.below(manifest).size() is not None:
        raise ConfigError(
            f"{location.url} has a savepoint already, with all state and what is to be committed; go on from "
            f"it with unistream run … -s {location.url}, or name another directory"
        )
    foreign = [name for name in location.names() if not _is_ours(name)] if location.is_directory() else []
    if foreign:
        raise ConfigError(
            f"{location.url} has other files, such as {min(foreign)!r}; name a directory of its "
            "own for the savepoint"
        )
    with transient(f"cannot make the directory {location.url}"):
        location.fs.makedirs(location.path, exist_ok=True)


def _is_ours(name: str) -> bool:
    return bool(_OURS.match(name)) or name.startswith(_UNFINISHED_MANIFEST)


def tidy(location: Location, manifest: Manifest) -> int:
    """Removes files of bootstraps that the savepoint does not name: of attempts that have lost, and of runs
    that died. Returns how many.

    Raises:
        OSError: not all of them could be removed.
    """
    named = {ref.path for ref in referenced_files(manifest)}
    found = [path for path in location.files() if _is_ours(path.partition("/")[0]) and path not in named]
    for path in found:
        with suppress(FileNotFoundError):
            location.fs.rm_file(f"{location.path.rstrip('/')}/{path}")
    folders = {path.rpartition("/")[0] for path in found}
    while folders:  # an object store has none
        for folder in sorted(folders, reverse=True):
            one = location.below(folder)
            if one.is_directory() and not one.names():
                one.fs.rmdir(one.path)
        folders = {folder.rpartition("/")[0] for folder in folders} - {""}
    return len(found)

"""Folders of rows that an engine stores for a job, next to its checkpoints: one for each run of the engine.

    <root>/<job id>/stored-<random>/state-<edge>-<producer>-<random>

A writer that is late, because its attempt has lost, finds its folder or its name gone, and fails.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Final

from unistream.model.stored_rows import StoredRows
from unistream.storage.location import Location, transient

STORED: Final = "stored-"


def new_stored_folder(job: Location, name: str) -> Location:
    """A new one in the folder of a job. Raises Transient."""
    folder = job.below(f"{STORED}{name}")
    with transient(f"cannot make {folder.url}"):
        folder.fs.makedirs(folder.path, exist_ok=False)
    return folder


def stored_folders(job: Location) -> list[Location]:
    """The folders that an engine has stored for a job, which are in that of the job."""
    return [job.below(name) for name in job.names() if name.startswith(STORED)]


def keep_stored(folder: Location, rows: Collection[StoredRows]) -> None:
    """Removes everything in it but the files of `rows`, and the folder if that is all. Raises Transient."""
    kept = {one.file.path for one in rows if one.folder == folder.url}
    with transient(f"cannot remove {folder.url}"):
        for name in folder.names():
            if name not in kept:
                with suppress(FileNotFoundError):
                    folder.fs.rm_file(f"{folder.path}/{name}")
        if not kept:
            with suppress(FileNotFoundError):
                folder.fs.rm(folder.path, recursive=True)

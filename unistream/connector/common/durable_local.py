"""Local files that survive a power cut: their bytes and their names."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress


def create(path: str, content: bytes, root: str | None = None) -> bool:
    """Durable, whole and only if absent. False: it is there already.

    Args:
        path: In a folder that exists.
        content: All of it.
        root: Folders up to this one may be new: their names are made durable too. None: none is.
    """
    draft = f"{path}.{uuid.uuid4().hex}.draft"
    try:
        with open(draft, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:  # also of one that a full disk has cut off: it would stay, and be joined by that of each restart
        with suppress(FileNotFoundError):
            os.remove(draft)
    folder = os.path.dirname(path)
    sync_folders(folder, folder if root is None else root)
    return True


def sync_folders(folder: str, root: str) -> None:
    """The names in `folder`, and those of the folders between it and `root`."""
    while folder.startswith(root):
        sync(folder)
        folder = os.path.dirname(folder)


def sync(path: str) -> None:
    """A file or a folder as it is now."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

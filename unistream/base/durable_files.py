"""Local files that survive a power cut, their bytes and their names, and that nobody sees half.

A new file is written under a hidden name beside its own, synced, and given its name by `link`, which fails
when the name is taken; then the folder is synced. (`rename` would replace what is there, and `O_EXCL` on the
final name would show readers half of it.) A name is durable when its folder is synced; that of a new folder,
when the one that it is in is.

`fsync` syncs an open file or folder; a test that cuts the power gives its own.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

WRITE_BYTES_MAX: Final = 8 * 1024 * 1024  # one system call; Linux ends at 2 GiB anyway

Fsync = Callable[[int], None]


def _fsync(handle: int) -> None:
    os.fsync(handle)


def create(path: str, content: bytes, root: str | None = None, fsync: Fsync = _fsync) -> bool:
    """Durable, whole and only if absent. False: it is there already, and durable by now.

    Args:
        path: In a folder that exists.
        content: All of it.
        root: Folders up to this one may be new: their names are made durable too. None: none is.
        fsync: See above.
    """
    target = Path(path)
    temporary = temporary_of(target)
    try:
        write(temporary, content, fsync)
        os.link(temporary, target)
    except FileExistsError:
        sync(target.parent, fsync)  # who gave the name may have died before it was durable
        return False
    finally:  # also of one that a full disk has cut off: it would stay, and be joined by that of each restart
        temporary.unlink(missing_ok=True)
    folder = str(target.parent)
    sync_folders(folder, folder if root is None else root, fsync)
    return True


def temporary_of(target: Path) -> Path:
    """A hidden name beside its own, unlike all others."""
    return target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")


def write(path: Path, content: bytes | memoryview, fsync: Fsync = _fsync) -> None:
    """A new file whose bytes are durable; its name is not yet. Raises FileExistsError."""
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    try:
        rest = memoryview(content).cast("B")
        while rest:
            rest = rest[os.write(handle, rest[:WRITE_BYTES_MAX]) :]
        fsync(handle)
    finally:
        os.close(handle)


def make_folders(folder: str | Path, fsync: Fsync = _fsync, *, exist_ok: bool = True) -> None:
    """A folder and those that it is in, each of them durable."""
    target = Path(folder)
    missing = [path for path in (target, *target.parents) if not path.exists()]
    os.makedirs(target, exist_ok=exist_ok)
    for created in missing:
        sync(created.parent, fsync)


def sync_folders(folder: str, root: str, fsync: Fsync = _fsync) -> None:
    """The names in `folder`, and those in the folders between it and `root`, which others may have made."""
    while folder.startswith(root):
        sync(folder, fsync)
        folder = os.path.dirname(folder)


def sync(path: str | Path, fsync: Fsync = _fsync) -> None:
    """A file or a folder as it is now."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fsync(handle)
    finally:
        os.close(handle)

"""Local files that are atomic and survive a power cut, content and name.

A new file is written under a hidden name next to its own, synced, and named by `link`, which fails if the
name exists; then the folder is synced. (`rename` would replace a file, and with `O_EXCL` on the final name
readers would see a partial file.) A name is durable once its folder is synced, also that of a folder.

Files and folders are the owner's alone (0600 and 0700), whatever the umask: they hold rows, state, and code
with its secrets. Those of a user's own table are `shared`: the umask says who may read them, as with all
other writers of tables.

`fsync` syncs an open file or folder; tests of power cuts pass their own.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

_TEMPORARY_NAME: Final = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp")

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
_SHARED_FILE: Final = 0o666  # less the umask
_SHARED_FOLDER: Final = 0o777

WRITE_BYTES_MAX: Final = 8 * 1024 * 1024  # per system call; the limit of Linux is 2 GiB

Fsync = Callable[[int], None]


def _fsync(handle: int) -> None:
    os.fsync(handle)


def create(
    path: str, content: bytes, root: str | None = None, fsync: Fsync = _fsync, *, shared: bool = False
) -> bool:
    """Creates a durable file if it is absent. False: it exists, and is durable now.

    Args:
        path: In an existing folder.
        content: All of it.
        root: Folders up to this one may be new, and are synced too. None: none is new.
        fsync: See above.
        shared: See above.
    """
    target = Path(path)
    temporary = temporary_of(target)
    try:
        write(temporary, content, fsync, shared=shared)
        os.link(temporary, target)
    except FileExistsError:
        sync(target.parent, fsync)  # the process that created it may have died before
        return False
    finally:  # also after an error: each restart would leave one more
        temporary.unlink(missing_ok=True)
    folder = str(target.parent)
    sync_folders(folder, folder if root is None else root, fsync)
    return True


def temporary_of(target: Path) -> Path:
    """A hidden, unique name next to its own."""
    return target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")


def named_after(temporary: str) -> str | None:
    """The name that a `temporary_of` was to get. None: `temporary` is not the name of one.

    >>> named_after(temporary_of(Path("part-1")).name)
    'part-1'
    """
    match = _TEMPORARY_NAME.fullmatch(temporary)
    return None if match is None else match[1]


def write(path: Path, content: bytes | memoryview, fsync: Fsync = _fsync, *, shared: bool = False) -> None:
    """Writes a new file with durable content; its name is not durable yet. Raises FileExistsError."""
    mode = _SHARED_FILE if shared else PRIVATE_FILE
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode)
    try:
        rest = memoryview(content).cast("B")
        while rest:
            rest = rest[os.write(handle, rest[:WRITE_BYTES_MAX]) :]
        fsync(handle)
    finally:
        os.close(handle)


def private(path: str, flags: int) -> int:
    """An `opener` of `open`: what it creates is the owner's alone."""
    return os.open(path, flags, PRIVATE_FILE)


def make_folders(
    folder: str | Path, fsync: Fsync = _fsync, *, exist_ok: bool = True, shared: bool = False
) -> None:
    """Creates a folder and its parents, all durable. Those that exist stay as they are."""
    target = Path(folder)
    missing = [path for path in (target, *target.parents) if not path.exists()]
    if not missing and not (exist_ok and target.is_dir()):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    for path in reversed(missing):
        try:
            path.mkdir(_SHARED_FOLDER if shared else PRIVATE_FOLDER)
        except FileExistsError:  # made by another process meanwhile
            if not path.is_dir() or (path == target and not exist_ok):
                raise
        sync(path.parent, fsync)


def sync_folders(folder: str, root: str, fsync: Fsync = _fsync) -> None:
    """Makes the names in `folder` and in its parents up to `root` durable."""
    while folder.startswith(root):
        sync(folder, fsync)
        folder = os.path.dirname(folder)


def sync(path: str | Path, fsync: Fsync = _fsync) -> None:
    """Syncs a file or folder."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fsync(handle)
    finally:
        os.close(handle)

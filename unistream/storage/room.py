"""How much room a folder has: of its disk, if it is on one of this machine."""

from __future__ import annotations

import os
import re
import shutil
import threading
from typing import Final, NamedTuple

_SCHEME: Final = re.compile(r"^([A-Za-z][A-Za-z0-9+.\-]*)://")
_ELSEWHERE: Final = re.compile(r"^(?!file:|local:)[A-Za-z][A-Za-z0-9+.\-]*:")
ASK_S: Final = 0.5
"""Who comes while another one asks for the same disk waits so long: a network drive that hangs keeps one
thread, not all that answer requests."""

_asking: Final[dict[str, threading.Lock]] = {}
_lock: Final = threading.Lock()


class Room(NamedTuple):
    """The room of a disk, as this process may use it."""

    free_bytes: int
    total_bytes: int


def room_at(url: str) -> Room | None:
    """The room of the disk of a folder, which need not be there yet. None: it is in an object
    store or another one that has no such figure, or cannot be read now: that is not the same as no room.

    >>> room_at("s3://bucket/checkpoints") is None, room_at("/") is None
    (True, False)
    """
    if _ELSEWHERE.match(url):
        return None
    folder = os.path.abspath(_SCHEME.sub("", url))
    with _lock:
        one = _asking.setdefault(folder, threading.Lock())
    if not one.acquire(timeout=ASK_S):
        return None
    try:
        total, _, free = shutil.disk_usage(_existing(folder))
    except OSError:
        return None
    finally:
        one.release()
    return Room(free, total) if total > 0 else None


def _existing(folder: str) -> str:
    """The folder, or the nearest one above it that is there: it will be made on that disk."""
    while not os.path.exists(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    return folder

"""Places of bounded jobs: as many at a time as the Spark master has cores, in local mode.

There Spark's threads are places for workers, and more than the cores (`host.spark`). So a place waits for one
of as many files as there are cores, and locks it; the lock ends with its process.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

POLL_S: Final = 0.02


@contextmanager
def core_slot(folder: str, slots: int) -> Iterator[None]:
    """Waits for one of `slots` slots, whose files are in `folder`; none is needed if that is empty."""
    if not folder:
        yield
        return
    file = _locked(Path(folder), slots)
    try:
        yield
    finally:
        os.close(file)


def _locked(folder: Path, slots: int) -> int:
    """Not bounded in time: a task that is cancelled is killed."""
    while True:
        for number in range(slots):
            folder.mkdir(parents=True, exist_ok=True)  # a cleaner of temporary files may have removed it
            file = os.open(folder / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
            else:
                return file
        time.sleep(POLL_S)

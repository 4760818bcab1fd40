"""A disk of some megabytes, which is full at once: a tmpfs in a mount namespace of its own."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.eventually import WAIT_S

BLOCK: Final = b"\0" * 4_096


def may_mount() -> bool:
    """Whether this account may have such a namespace, and a tmpfs in it."""
    words = ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=1m", "none", "/mnt"]
    try:
        return subprocess.run(words, capture_output=True, timeout=WAIT_S, check=False).returncode == 0
    except OSError:
        return False


@contextmanager
def small_disk(folder: Path, size: str = "2m") -> Iterator[Path]:
    """An empty disk; `folder` is its place in the namespace, and the path that it gives leads there from
    outside. It is gone at the end."""
    folder.mkdir(parents=True)
    mount = f'mount -t tmpfs -o size={size} none "$0" && echo mounted && exec cat'
    words = ["unshare", "-m", "sh", "-c", mount, str(folder)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "mounted\n"
        outside = folder.with_name(f"{folder.name}-outside")
        outside.symlink_to(f"/proc/{holder.pid}/root{folder}")
        try:
            yield outside
        finally:
            holder.communicate()  # its input ends, and so does it


def fill_up(disk: Path) -> Path:
    """Until not another byte fits; the file that fills it."""
    ballast = disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(BLOCK)
    return ballast

"""What this process may use of its machine: cores and memory, a container's limits included.

Limits of control groups are read from the group of this process and from all groups around it, of both
versions of the kernel's interface; the smallest counts. A group's path may be that of another name space (a
container that sees its host's): then its root is the container's own.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

_ROOT: Final = Path("/")
_STATM_RESIDENT: Final = 1  # the second number of /proc/self/statm, in pages


def usable_cores(root: Path = _ROOT) -> int:
    """Cores that this process may use at the same time: of its affinity, or of a container's limit, a part of
    a core counting as one."""
    affine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = [affine, *(max(1, math.ceil(limit)) for limit in _cpu_limits(root))]
    return min(limits)


def usable_memory_bytes(root: Path = _ROOT) -> int | None:
    """Physical memory, or a container's limit. None: this system does not say it."""
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None
    return min([physical, *_memory_limits(root)])


def resident_bytes(root: Path = _ROOT) -> int | None:
    """The memory that this process has now. None: this system does not say it."""
    try:
        pages = (root / "proc/self/statm").read_text().split()[_STATM_RESIDENT]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _cpu_limits(root: Path) -> Iterator[float]:
    for folder in _groups(root, ""):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        yield from _quotient(quota, period)
    for folder in _groups(root, "cpu"):
        yield from _quotient(_text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us"))


def _quotient(quota: str, period: str) -> Iterator[float]:
    """Nothing for "max", -1, and what is no number."""
    if quota.isdecimal() and period.isdecimal() and int(period):
        yield int(quota) / int(period)


def _memory_limits(root: Path) -> Iterator[int]:
    texts = [_text(folder / "memory.max") for folder in _groups(root, "")]
    texts += [_text(folder / "memory.limit_in_bytes") for folder in _groups(root, "memory")]
    yield from (int(text) for text in texts if text.isdecimal() and int(text))


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of this process's group and those around it; `controller` "": of version 2."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if controller not in names.split(","):
            continue
        mount = root / "sys/fs/cgroup" / names
        inner = PurePosixPath("/", *(part for part in PurePosixPath(path).parts[1:] if part != ".."))
        yield from (mount / str(one).lstrip("/") for one in (inner, *inner.parents))


def _text(file: Path) -> str:
    with contextlib.suppress(OSError, ValueError):
        return file.read_text().strip()
    return ""

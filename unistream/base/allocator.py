"""The allocators of a worker; see docs/decision/memory-model.md. Does not import Arrow."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Final

VARIABLE: Final = "ARROW_DEFAULT_MEMORY_POOL"
KEPT_BLOCK_BYTES: Final = 8 * 2**20  # a larger one has pages of its own
KEPT_BYTES: Final = 32 * 2**20  # free at the end of an arena, before they are given back
_OF_MALLOC: Final = (  # a variable of glibc, its parameter of mallopt, the value
    ("MALLOC_MMAP_THRESHOLD_", -3, KEPT_BLOCK_BYTES),
    ("MALLOC_TRIM_THRESHOLD_", -1, KEPT_BYTES),
)


def choose_allocator() -> None:
    """Selects jemalloc for Arrow on Linux, and has malloc keep what is freed, unless the environment says
    otherwise. Arrow reads its variable when it is loaded; later calls only affect child processes."""
    if sys.platform == "linux":
        os.environ.setdefault(VARIABLE, "jemalloc")
        _keep_freed_memory()


def _keep_freed_memory() -> None:
    """numpy, Python's bytes and RocksDB use malloc. As it is, a block of some megabytes is given back to the
    system when it is freed, and the next one of that size costs a page fault for each 4 KB: a third of the
    time of a Kafka reader. Other C libraries than glibc have no mallopt, and are left alone."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    for variable, parameter, value in _OF_MALLOC:
        tunable = f"glibc.malloc.{variable.removeprefix('MALLOC_').rstrip('_').lower()}"
        if variable not in os.environ and tunable not in tunables:
            mallopt(parameter, value)


def give_back_freed_memory() -> None:
    """What a task that was cancelled held lies free between what lives on, and malloc only gives back what is
    free at the end of an arena. The next attempt would need its memory besides: its thread has another arena.
    Takes about half a second of processor time for each GB, without Python's lock."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)

"""Which allocator Arrow takes in a worker; see docs/decision/memory-model.md. Imports no Arrow."""

from __future__ import annotations

import os
import sys
from typing import Final

VARIABLE: Final = "ARROW_DEFAULT_MEMORY_POOL"


def choose_allocator() -> None:
    """Makes Arrow take jemalloc on Linux, unless the environment names another. Arrow looks once, when it is
    loaded: afterwards this does nothing in this process, but its children inherit it."""
    if sys.platform == "linux":
        os.environ.setdefault(VARIABLE, "jemalloc")

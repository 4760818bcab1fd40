"""The allocator of Arrow in a worker; see docs/decision/memory-model.md. Does not import Arrow."""

from __future__ import annotations

import os
import sys
from typing import Final

VARIABLE: Final = "ARROW_DEFAULT_MEMORY_POOL"


def choose_allocator() -> None:
    """Selects jemalloc on Linux, unless the environment names another allocator. Arrow reads the variable
    when it is loaded; later calls only affect child processes."""
    if sys.platform == "linux":
        os.environ.setdefault(VARIABLE, "jemalloc")

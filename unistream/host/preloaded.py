"""The libraries of a worker that is forked: what its process has loaded before the fork.

Loading numpy, Arrow and our operators takes half a second of processor time; a fork of a process that has
loaded them takes milliseconds. Nothing here may start a thread: it would be missing in the fork, with its
locks held.
"""

from __future__ import annotations

import gc
from importlib import import_module
from typing import Final

from unistream.base.allocator import choose_allocator

PRELOADED: Final = (
    "fsspec.implementations.local",
    "pyarrow.compute",
    "pyarrow.parquet",
    "unistream.connector.collect",
    "unistream.connector.file",
    "unistream.connector.catalogue",
    "unistream.operator.process",
    "unistream.operator.sink",
    "unistream.operator.window",
    "unistream.worker.process",
)


def preload(*more: str) -> None:
    """Imports `PRELOADED` and the modules `more`. Call it before Arrow is loaded, and fork afterwards."""
    choose_allocator()
    for name in (*PRELOADED, *more):
        import_module(name)
    gc.collect()
    gc.freeze()  # else a collection in a fork copies every page

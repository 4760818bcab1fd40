"""pyspark's daemon, from which Spark forks its Python workers, with the libraries of our tasks loaded.

Each task gets a process of its own (a TaskManager's is never another one's), and loading numpy, Arrow and our
operators takes 0.8 s of CPU; a fork of a process that has loaded them takes milliseconds. Spark starts this
module instead of `pyspark.daemon` (`spark.python.daemon.module`). Nothing here may start a thread.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from typing import Final
from zipimport import zipimporter

from pyspark.daemon import manager

from unistream.base.allocator import choose_allocator

LOADED: Final = (
    "fsspec.implementations.local",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyspark.worker",
    "unistream.connector.collect",
    "unistream.connector.file",
    "unistream.connector.registry",
    "unistream.host.spark",
    "unistream.host.spark_engine",
    "unistream.operator.process",
    "unistream.operator.sink",
    "unistream.operator.window",
    "unistream.worker.bounded",
    "unistream.worker.process",
)


def main() -> None:
    """Loads, then serves until Spark closes its input."""
    choose_allocator()  # before Arrow is loaded
    for name in LOADED:
        import_module(name)
    gc.collect()
    gc.freeze()  # else a collection in a fork copies every page
    for path in [path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)]:
        del sys.path_importer_cache[
            path
        ]  # else each worker begins with reading all directories of pyspark.zip
    manager()


if __name__ == "__main__":
    main()

"""pyspark's daemon, from which Spark forks its Python workers, with the libraries of our tasks loaded.

Each task gets a process of its own (a TaskManager's is never another one's), so what it loads counts. Spark
starts this module instead of `pyspark.daemon` (`spark.python.daemon.module`). Nothing here may start a
thread.
"""

from __future__ import annotations

import sys
from typing import Final
from zipimport import zipimporter

from pyspark.daemon import manager

from unistream.host.preloaded import preload

OF_SPARK: Final = (
    "pyspark.worker",
    "unistream.host.spark",
    "unistream.host.spark_executor",
    "unistream.host.spark_engine",
    "unistream.worker.bounded",
)


def main() -> None:
    """Loads, then serves until Spark closes its input."""
    preload(*OF_SPARK)
    for path in [path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)]:
        del sys.path_importer_cache[
            path
        ]  # else each worker begins with reading all directories of pyspark.zip
    manager()


if __name__ == "__main__":
    main()

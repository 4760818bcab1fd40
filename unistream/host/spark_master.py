"""What the name of a Spark master says, and which one the program's own Spark has."""

from __future__ import annotations

import os
import re
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.sql.utils import is_remote

from unistream.base.errors import ConfigError

ATTEMPTS_MAX: Final = 4  # Spark's default of spark.task.maxFailures

_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"  # that of the JVM of which this program is a child
_LOCAL: Final = re.compile(r"^local(?:\[(\*|\d+)(?:,(\d+))?\])?$")


def is_local(master: str) -> bool:
    """Spark's threads in this machine's JVM are the places for workers.

    >>> is_local("local[*]"), is_local("local"), is_local("local-cluster[2,1,512]"), is_local("spark://m:7077")
    (True, True, False, False)
    """
    return _LOCAL.match(master) is not None


def local_cores(master: str) -> int | None:
    """How many tasks a local Spark master runs at a time; None: it is not local.

    >>> local_cores("local"), local_cores("local[2]"), local_cores("local[3,4]"), local_cores("spark://m:7077")
    (1, 2, 3, None)
    """
    found = _LOCAL.match(master)
    if found is None:
        return None
    number = found[1] or "1"
    return len(os.sched_getaffinity(0)) if number == "*" else int(number)


def attempts_max(context: SparkContext) -> int:
    """How often Spark runs a task that fails before it fails the job. In local mode the master says it."""
    found = _LOCAL.match(context.master)
    if found is not None:
        return int(found[2] or 1)
    return int(context.getConf().get("spark.task.maxFailures") or ATTEMPTS_MAX)


def running_context() -> SparkContext | None:
    """The Spark context of this program, which then hosts the workers, whatever is configured."""
    context: SparkContext | None = SparkContext._active_spark_context
    if context is None or getattr(context, "_jsc", None) is None:
        return None
    try:
        return None if context._jsc.sc().isStopped() else context
    except (Py4JError, OSError):  # its JVM has ended
        return None


def actual_master(configured: str) -> str:
    """The master of the program's Spark context, or, without one, the configured master."""
    context = running_context()
    return configured if context is None else str(context.master)


def submitted_settings() -> dict[str, str]:
    """What `spark-submit` has given this program, in either deploy mode, on the command line or from its
    files; empty: it did not start it."""
    if _GATEWAY not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def refuse_connect() -> None:
    """Raises ConfigError: the program uses Spark Connect, where nothing can host workers."""
    if is_remote():
        raise ConfigError(
            "this program uses Spark Connect, which has no SparkContext to host workers: run the job with "
            'target="local" (-t local); its DataFrames can be sources and results there, too, by staging='
        )

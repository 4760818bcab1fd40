"""Failures of Spark jobs in one line.

A program with a SparkSession gets other error classes than one with a SparkContext: only the text is common.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from unistream.host.spark_executor import UNFIT

_PYTHON_ERROR: Final = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception): .*)$", re.MULTILINE)
_NO_PROGRAM: Final = re.compile(r"Cannot run program .*")
_NOT_IMPORTED: Final = re.compile(r"^(?:ModuleNotFoundError|ImportError): .*$", re.MULTILINE)
_NO_DAEMON: Final = re.compile(r"ModuleNotFoundError: No module named 'unistream[\w.]*'")
_OTHER_VERSION: Final = re.compile(
    r"Python in worker has different version.*?\.(?=\s|$)|PYTHON_VERSION_MISMATCH"
)
_UNFIT: Final = re.compile(rf"^.*?({UNFIT} .*)$", re.MULTILINE)
_OTHER_RELEASE: Final = re.compile(r"host \S+ has unistream [^:\n]*, and the master has unistream [^:\n]*")
_TASK: Final = re.compile(
    r"Lost task \d+\.(\d+) in stage (\d+)\.\d+ \(TID \d+\) \((\S+) executor ([^)\s]+)\)"
)
"""What Spark's text of a failed task names: its attempt, from 0, its stage, its executor's host and name."""


class FailedTask(NamedTuple):
    """Where a task failed at last. `attempts`: how often it was tried; `stage`: by Spark's number."""

    stage: int
    attempts: int
    host: str
    executor: str


def in_words(error: Exception | str) -> str:
    """A Spark failure in one line."""
    text = text_of(error)
    if "Python worker exited unexpectedly" in text:
        return "its Python worker process ended unexpectedly (crashed or killed)"
    python = _PYTHON_ERROR.findall(text)
    return str(python[-1]) if python else text.partition("\n")[0] or type(error).__name__


def unusable_python(error: Exception | str, python: str) -> str | None:
    """Why no worker can ever start with the interpreter `python` of Spark's tasks, or on an executor; None:
    another failure."""
    text = text_of(error)
    if (unfit := _UNFIT.search(text)) is not None:
        return unfit[1]
    found = _NO_PROGRAM.search(text) or _NOT_IMPORTED.search(text) or _OTHER_VERSION.search(text)
    found = found or _OTHER_RELEASE.search(text) or _NO_DAEMON.search(text)
    if found is None:
        return None
    return (
        f"the Python of Spark's workers, {python}, cannot run unistream ({found[0].strip()}): install "
        "unistream for it, or set PYSPARK_PYTHON to an interpreter of the same version that has it"
    )


def failed_task(error: Exception | str) -> FailedTask | None:
    """The task whose failure ended a Spark job; None: it ended for another reason.

    >>> failed_task(
    ...     "Job aborted due to stage failure: Task 4 in stage 3.0 failed 4 times, most recent failure: "
    ...     "Lost task 4.3 in stage 3.0 (TID 17) (node-7 executor 2): ExecutorLostFailure (executor 2 exited"
    ... )
    FailedTask(stage=3, attempts=4, host='node-7', executor='2')
    """
    found = _TASK.search(text_of(error))
    if found is None:
        return None
    return FailedTask(stage=int(found[2]), attempts=int(found[1]) + 1, host=found[3], executor=found[4])


def text_of(error: Exception | str) -> str:
    """The whole text of Spark's error, or of a task's."""
    return str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)

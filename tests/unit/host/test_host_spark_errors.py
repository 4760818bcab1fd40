"""What Spark says, as pyspark 4 gives it to a program with a SparkContext and to one with a SparkSession."""

from __future__ import annotations

import pytest

from unistream.host.spark_errors import FailedTask, failed_task, in_words, unusable_python

TRACE = 'Traceback (most recent call last):\n  File "serializers.py", line 483, in loads\n'
LOST = "Job aborted due to stage failure: Task 0 failed 1 times, most recent failure: Lost task 0.0 in"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        pytest.param(
            f"[PYTHON_EXCEPTION] An exception was thrown from the Python worker: {TRACE}"
            "ModuleNotFoundError: No module named 'unistream'\n",
            "ModuleNotFoundError: No module named 'unistream'",
            id="without unistream",
        ),
        pytest.param(
            f"An exception was thrown from the Python worker:\n{TRACE}"
            "ImportError: libarrow.so: cannot open shared object file\n SQLSTATE: 38000",
            "ImportError: libarrow.so: cannot open shared object file",
            id="with a broken library, in a session",
        ),
        pytest.param(
            f"{LOST} stage 0.0 (TID 0) (node-7 executor 3): java.io.IOException: "
            'Cannot run program "/no/such/python": error=2, No such file or directory\n\tat java.base/x',
            'Cannot run program "/no/such/python": error=2, No such file or directory',
            id="no program",
        ),
        pytest.param(
            f"{TRACE}pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in"
            " worker has different version: 3.9 than that in driver: 3.11, PySpark cannot run with other"
            " versions.\nPlease check environment variables",
            "PYTHON_VERSION_MISMATCH",
            id="another version",
        ),
        pytest.param(
            f"{LOST} stage 0.0 (TID 0) (node-7 executor 3): SparkException:\nError from python"
            " worker:\n  /usr/bin/python3: Error while finding module specification for 'unistream.host.spark"
            "_daemon' (ModuleNotFoundError: No module named 'unistream')\nPYTHONPATH was:",
            "ModuleNotFoundError: No module named 'unistream'",
            id="without unistream, where the daemon is ours",
        ),
        pytest.param(
            f"An exception:\n{TRACE}unistream.base.errors.ConfigError: host node-7 has unistream 0.2.0, and "
            "the master has unistream 0.1.0: the first two numbers have to be the same",
            "host node-7 has unistream 0.2.0, and the master has unistream 0.1.0)",
            id="with another unistream",
        ),
    ],
)
def test_an_interpreter_that_cannot_run_a_worker_is_named(text: str, cause: str) -> None:
    said = unusable_python(RuntimeError(text), "/usr/bin/python3")
    assert said is not None
    assert said.startswith(f"the Python of Spark's workers, /usr/bin/python3, cannot run unistream ({cause}")
    assert said.endswith("set PYSPARK_PYTHON to an interpreter of the same version that has it")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
            "its Python worker process ended unexpectedly (crashed or killed)",
            id="killed",
        ),
        pytest.param(
            f"An exception:\n{TRACE}ValueError: 5\n SQLSTATE", "ValueError: 5", id="an error of Python"
        ),
        pytest.param(
            "Job 3 cancelled part of job group x\nmore", "Job 3 cancelled part of job group x", id="one line"
        ),
        pytest.param("", "RuntimeError", id="nothing"),
    ],
)
def test_other_failures_are_one_line_and_may_pass(text: str, words: str) -> None:
    assert in_words(RuntimeError(text)) == words
    assert unusable_python(RuntimeError(text), "python3") is None


@pytest.mark.parametrize(
    ("text", "task"),
    [
        pytest.param(
            f"{LOST} stage 0.0 (TID 0) (node-7 executor 3): java.io.IOException",
            FailedTask(stage=0, attempts=1, host="node-7", executor="3"),
            id="on a host of a cluster",
        ),
        pytest.param(
            "Job aborted due to stage failure: Task 1 in stage 12.1 failed 4 times, most recent failure: "
            "Lost task 1.3 in stage 12.1 (TID 40) (localhost executor driver): Python worker exited",
            FailedTask(stage=12, attempts=4, host="localhost", executor="driver"),
            id="in local mode, for the fourth time",
        ),
        pytest.param(
            f"{LOST} stage 2.0 (TID 9) (fd00::7 executor 11): ExecutorLostFailure (executor 11 exited)",
            FailedTask(stage=2, attempts=1, host="fd00::7", executor="11"),
            id="on a host without a name",
        ),
        pytest.param("no executors", None, id="nowhere"),
    ],
)
def test_the_place_of_a_failed_task(text: str, task: FailedTask | None) -> None:
    assert failed_task(RuntimeError(text)) == task

"""The Spark context that a host runs its workers in: that of this process, or its own.

A context that the program has made itself has its master and its settings: a warning names those of the
configuration that have no effect in it.

A context may end at any time: its JVM is killed, the Spark master removes an application whose executors keep
failing, a program stops the context that it shares with its cluster. Its workers are lost then, and no other
can start. So each start of a worker gets the current context, and an ended one is replaced.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext

from unistream.base.config import FOREIGN, SPARK_AUTHENTICATION, Configuration, is_secret
from unistream.base.errors import ConfigError, Unreachable
from unistream.base.secrets import resolved
from unistream.core.memory import cpu_threads
from unistream.host.processes import Processes, below
from unistream.host.spark_errors import in_words
from unistream.host.spark_master import (
    is_local,
    local_cores,
    refuse_connect,
    running_context,
    submitted_settings,
)
from unistream.host.spark_placement import Placement
from unistream.host.spark_security import exposure, leaves_machine
from unistream.host.spark_settings import set_elsewhere, spark_settings
from unistream.host.spark_status import is_known, live_executors

LOCAL_ATTEMPTS_MAX: Final = 4  # of a task, as on a cluster
JVM_EXIT_S: Final = 10.0
WORKERS_EXIT_S: Final = 5.0  # they follow their JVM at once

_LOG: Final = logging.getLogger("unistream.host")


@dataclass(frozen=True, slots=True)
class LiveSpark:
    """A running context. `placement` None: local mode. `owned`: it was started here; `jvm_owned`: so was its
    JVM."""

    context: SparkContext
    placement: Placement | None
    jvm_pid: int
    owned: bool
    jvm_owned: bool

    @property
    def lives(self) -> bool:
        """Jobs can be given to it."""
        if getattr(self.context, "_jsc", None) is None:
            return False
        try:
            return not self.context._jsc.sc().isStopped()
        except (Py4JError, OSError):  # the JVM has ended
            return False


def begin_job_group(context: SparkContext, group: str, title: str) -> None:
    """The jobs that this thread starts from now on belong to `group`, so that they can be cancelled together.

    Cancelling interrupts no thread of an executor. One that is interrupted while it waits for a new Python
    worker (a task that is repeated) takes that for a time-out, believes that the daemon from which Python
    workers are forked is gone, and starts another one; all workers of the executor die with the former one
    (Spark 4.3: PythonWorkerFactory, "Lost connection to Python daemon"). Without it Spark kills the
    Python worker of a cancelled task after `spark.python.task.killTimeout`.
    """
    context.setJobGroup(group, title, interruptOnCancel=False)


class SparkApplication:
    """Thread-safe.

    Args:
        master: A Spark master; `local` and `local[...]` are sized by `workers_max`.
        workers_max: The most workers at the same time.
        config: Its keys that begin with `spark.` go to Spark.

    Attributes:
        exposure: Why others may get what Spark carries, for people; "": they do not.

    Raises:
        ConfigError: Spark does not start (no Java, a master that is not there), or nothing is where a secret
            of its configuration should be; or others may get what it carries, and that is refused.
    """

    def __init__(self, master: str, workers_max: int, config: Mapping[str, str]) -> None:
        self._master = master
        self._workers_max = workers_max
        secrets = {key: resolved(key, value) for key, value in config.items() if _is_spark_secret(key)}
        self._config = {**config, **secrets}
        self._lock = threading.Lock()  # held while Spark starts: seconds, a minute where no master answers
        self._closed = False
        self.exposure = ""
        self._spark = self._begin()

    def living(self) -> LiveSpark:
        """The current context, or a new one, which takes seconds to start.

        Raises:
            ConfigError: Spark does not start.
            Unreachable: it was closed.
        """
        with self._lock:
            if self._closed:
                raise Unreachable("this host is closed")
            if not self._spark.lives:
                _LOG.warning("event=spark_ended action=start_again application=%s", self._master)
                _forget_dead(self._spark)
                self._spark = self._begin(jvm_owned=self._spark.jvm_owned)
            return self._spark

    def end_forgotten(self) -> None:
        """Ends the context if its master does not know it any more, so that the next worker begins a new
        one. One that the program has made stays: what else is done in it is not known here."""
        spark = self._spark
        if spark.placement is None or not spark.owned or not spark.lives or live_executors(spark.context):
            return
        if is_known(spark.context) is False:
            _LOG.warning(
                "event=spark_forgotten application=%s action=start_again reason=%r",
                spark.context.applicationId,
                f"{spark.context.master} was restarted and does not know it (spark.deploy.recoveryMode)",
            )
            _stop(spark.context)

    @property
    def is_local(self) -> bool:
        """Workers run on this machine, on Spark's threads."""
        return is_local(str(self._spark.context.master))

    @property
    def cores(self) -> int | None:
        """How many tasks of a bounded job run at a time in local mode; None: Spark's executors say it.

        A context that is started here has more threads than that, as places for workers."""
        spark = self._spark
        return local_cores(self._master if spark.owned else str(spark.context.master))

    def close(self) -> None:
        """Ends the context and its JVM if they were started here. Safe to repeat."""
        with self._lock:
            if self._closed or not self._spark.owned:
                self._closed = True
                return
            self._closed = True
            workers = Processes(below(self._spark.jvm_pid))
            _stop(self._spark.context)
            if self._spark.jvm_owned:
                end_jvm()
                workers.end(WORKERS_EXIT_S)

    def _begin(self, *, jvm_owned: bool = False) -> LiveSpark:
        jvm_owned |= SparkContext._gateway is None
        found = running_context()
        owned = found is None
        if found is None:
            context = _context(self._master, self._workers_max, self._config, may_end_jvm=jvm_owned)
        else:
            context = found
            _warn_of_ignored(context, self._config)
        pid = int(context._jvm.java.lang.ProcessHandle.current().pid())
        placement = None if is_local(str(context.master)) else Placement(context)
        spark = LiveSpark(context, placement, pid, owned, jvm_owned)
        self._look_at_connections(spark)
        return spark

    def _look_at_connections(self, spark: LiveSpark) -> None:
        """Raises ConfigError: see the class; Spark has ended then, if it was started here."""
        config = Configuration(self._config)
        if spark.placement is None or not leaves_machine(config):
            return
        self.exposure = exposure(spark.context.getConf().get, str(spark.context.master)) or ""
        if not self.exposure:
            return
        if config.get(SPARK_AUTHENTICATION):
            if spark.owned:
                _stop(spark.context)
            if spark.owned and spark.jvm_owned:
                end_jvm()
            raise ConfigError(f"{self.exposure} ({SPARK_AUTHENTICATION.key} is true)")
        _LOG.warning("event=spark_exposed reason=%r", self.exposure)


def _is_spark_secret(key: str) -> bool:
    """References in it have travelled as they are."""
    return key.startswith(FOREIGN) and is_secret(key)


def _warn_of_ignored(context: SparkContext, config: Mapping[str, str]) -> None:
    """Says which options of the configuration a context that the program has made does not have. (Names only:
    values may be secrets.)"""
    actual = context.getConf()
    ignored = [
        key
        for key, value in sorted(config.items())
        if key.startswith("spark.")
        and value != (context.master if key == "spark.master" else actual.get(key))
    ]
    if ignored:
        _LOG.warning(
            "event=spark_options_ignored master=%s: the job runs in the Spark session that this program has "
            "made, where %s of its configuration %s no effect: set them where the session is made",
            context.master,
            ", ".join(ignored),
            "has" if len(ignored) == 1 else "have",
        )


def _forget_dead(spark: LiveSpark) -> None:
    """Resets pyspark, so that it starts again, with a new JVM if the old one has ended."""
    with SparkContext._lock:
        if SparkContext._active_spark_context is spark.context:
            _stop(spark.context)
        gateway: Any = SparkContext._gateway
        if gateway is None:
            return
        try:
            gateway.jvm.java.lang.ProcessHandle.current().pid()
        except (Py4JError, OSError):
            end_jvm()


def _stop(context: SparkContext) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # pyspark's warning about a JVM that has ended
        for _ in range(2):  # the first call fails halfway with such a JVM
            with contextlib.suppress(Py4JError, OSError):
                context.stop()


def _context(master: str, workers_max: int, config: Mapping[str, str], *, may_end_jvm: bool) -> SparkContext:
    refuse_connect()
    _check_java()
    local = is_local(master)
    if local:
        os.environ["PYSPARK_PYTHON"] = sys.executable  # else Spark takes the system's python3
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        master = f"local[{2 * workers_max},{LOCAL_ATTEMPTS_MAX}]"
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # with a number of threads libraries are loaded after that is set for them
    own_daemon = cpu_threads(Configuration(config)) is None
    elsewhere = set_elsewhere() | submitted_settings().keys()
    settings = spark_settings(config, local=local, own_daemon=own_daemon, elsewhere=elsewhere)
    settings["spark.master"] = master
    try:
        with _own_interrupt_handler():
            return SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
    except Exception as error:
        if may_end_jvm:
            end_jvm()
        raise ConfigError(
            f"Spark {pyspark.__version__} does not start with master {master!r}: {in_words(error)}"
        ) from error


@contextlib.contextmanager
def _own_interrupt_handler() -> Iterator[None]:
    """Keeps the program's SIGINT handler: pyspark's own cancels all Spark jobs, and with them the workers,
    before a job can be stopped properly."""
    if threading.current_thread() is not threading.main_thread():
        yield  # there pyspark sets none
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else "java"
    if shutil.which(java) is None:
        where = f"JAVA_HOME is {home}, but {java} is no program" if home else "there is no java on the PATH"
        raise ConfigError(f"Spark needs Java 17 or later: {where}")


def end_jvm() -> None:
    """Ends the JVM that pyspark has started in this process, which otherwise lives as long as Python."""
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    with contextlib.suppress(Py4JError, OSError):
        gateway.shutdown()
    if process is None:
        return
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()  # the JVM ends at the end of its input
    try:
        process.wait(JVM_EXIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(JVM_EXIT_S)

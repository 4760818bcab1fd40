"""A Spark standalone cluster on this machine: each worker has a loopback address of its own as its host.

Its processes are started from the jars inside the installed pyspark, and only they are ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil
import pyspark

from tests.eventually import WAIT_S, eventually
from unistream.testing.devtools.process import free_ports

HOME = Path(pyspark.__file__).parent
CORES = 2  # of each worker
JAVA = (
    "java",
    "-Xmx192m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "util", "net", "nio")),
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "-cp",
    f"{HOME}/jars/*",
)
_BREAKER = """
import os, sys
from unistream.testing.devtools.process import free_ports
if os.path.exists({mark!r}):
    sys.exit("this host is broken")
"""


def spark_drivers() -> list[psutil.Process]:
    """The JVMs of Spark sessions in this process. Its other children may be servers that all tests share."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # a worker that has just ended
            if "org.apache.spark.deploy.SparkSubmit" in child.cmdline():
                found.append(child)
    return found


class SparkCluster:
    """Runs from construction until `close`.

    Args:
        hosts: Loopback addresses, such as 127.0.0.2; one worker with `CORES` cores on each.
        settings: Of its master and workers, and of their executors.
    """

    def __init__(self, folder: Path, hosts: Iterable[str], settings: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        lines = [f"{key} {value}" for key, value in (settings or {}).items()]
        self._settings = folder / "spark.conf"
        self._settings.write_text("\n".join([*lines, ""]))
        self._processes: list[subprocess.Popen[bytes]] = []
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._port, self._ui = free_ports(2)
        try:
            self.start_master()
            for host in hosts:
                self.start_worker(host)
            self.wait_for_workers(len(self._workers))
        except BaseException:
            self.close()
            raise

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def start_master(self) -> None:
        """Again, if it was killed."""
        ports = ("--port", str(self._port), "--webui-port", str(self._ui))
        self._master = self._start("master", "127.0.0.1", *ports, name="Master")

    def kill_master(self) -> None:
        self._master.kill()
        self._master.wait(WAIT_S)

    def decommission(self, host: str) -> None:
        """The worker is asked to leave, as by a cloud that takes its machine away. It and its executors stay
        for as long as these have tasks."""
        self._workers[host].send_signal(signal.SIGPWR)

    def executors(self, host: str) -> list[psutil.Process]:
        """The JVMs of the executors there."""
        found = []
        for one in self._below(host):
            with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
                if "java" in Path(one.exe()).name:
                    found.append(one)
        return found

    def start_worker(self, host: str) -> None:
        """Again, if the one of that host has ended. Its Python breaks while the host is broken."""
        site = self._folder / host
        site.mkdir(exist_ok=True)
        (site / "sitecustomize.py").write_text(_BREAKER.format(mark=str(self._mark(host))))
        self._workers[host] = self._start(
            "worker",
            host,
            *("--cores", str(CORES), "--memory", "1g", "--webui-port", str(free_ports(1)[0])),
            *("--work-dir", str(self._folder / f"work-{host}"), self.master),
            name="Worker",
            PYTHONPATH=os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]),
        )

    def wait_for_workers(self, count: int) -> None:
        """Until so many are registered."""
        eventually(lambda: self._alive() == count, f"{count} Spark workers: see {self._folder}", WAIT_S, 0.1)

    def break_python(self, host: str) -> None:
        """No Python worker starts there any more; those that run are killed, and their daemon with them."""
        self._mark(host).touch()
        for process in self._below(host):
            with contextlib.suppress(psutil.NoSuchProcess):
                if {"pyspark.daemon", "unistream.host.spark_daemon"} & set(process.cmdline()):
                    process.kill()

    def mend_python(self, host: str) -> None:
        self._mark(host).unlink()

    def kill_worker(self, host: str) -> None:
        """The JVM of the worker and that of its executor, at once."""
        victims = [p for p in self._below(host) if "java" in Path(p.exe()).name]
        self._workers[host].kill()
        for process in victims:
            process.kill()
        self._workers[host].wait(WAIT_S)

    def close(self) -> None:
        families = [process for host in self._workers for process in self._below(host)]
        for process in self._processes:
            process.kill()
            process.wait(WAIT_S)
        for orphan in families:
            with contextlib.suppress(psutil.NoSuchProcess):
                orphan.kill()
        psutil.wait_procs(families, timeout=WAIT_S)

    def _below(self, host: str) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self._workers[host].pid).children(recursive=True)
        return []

    def _mark(self, host: str) -> Path:
        return self._folder / f"{host}.broken"

    def _alive(self) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._ui}/json/", timeout=5) as answer:
                return sum(worker["state"] == "ALIVE" for worker in json.load(answer)["workers"])
        except (OSError, ValueError):  # ValueError: it has only begun to serve
            return 0

    def _start(self, kind: str, host: str, *words: str, name: str, **env: str) -> subprocess.Popen[bytes]:
        own = {"SPARK_HOME": str(HOME), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": host}
        own |= {"PYSPARK_PYTHON": sys.executable} | env
        with open(self._folder / f"{kind}-{host}.log", "ab") as log:
            process = subprocess.Popen(
                [
                    *(*JAVA, f"org.apache.spark.deploy.{kind}.{name}", "--host", host),
                    *("--properties-file", str(self._settings), *words),
                ],
                env=os.environ | own,
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)
        return process


def interrupted_when_cancelled() -> list[bool]:
    """For each active job of this process's Spark: whether cancelling it interrupts threads of executors,
    which may end all Python workers of an executor (`host.spark_application.begin_job_group`)."""
    from pyspark import SparkContext

    jobs = SparkContext.getOrCreate()._jsc.sc().dagScheduler().activeJobs().iterator()
    found = []
    while jobs.hasNext():
        found.append(jobs.next().properties().getProperty("spark.job.interruptOnCancel") != "false")
    return found

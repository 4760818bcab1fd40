"""A Spark standalone cluster whose master and workers are on hosts of their own, and our cluster in front of
it. Its processes are started from the jars inside the installed pyspark."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import psutil

from tests.eventually import WAIT_S, eventually
from tests.integration.on_hosts import HostedCluster
from tests.integration.spark_cluster import CORES, HOME, JAVA
from tests.support.servers.hosts import Host, Hosts

PORT: Final = 7077
UI_PORT: Final = 8080
SECRET: Final = "canary-of-the-secret-that-spark-has"  # of a test
NONE: Final[Mapping[str, str]] = {}
SPARK: Final = {
    "spark.executor.memory": "512m",
    "spark.cores.max": str(2 * CORES),
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""Options of our clusters in front of it."""


class SparkOnHosts:
    """Until its hosts end.

    Args:
        folder: Of all that it has.
        at: The host of its master.
        settings: Of its master, its workers and their executors.
    """

    def __init__(self, folder: Path, hosts: Hosts, at: str, settings: Mapping[str, str] = NONE) -> None:
        self.folder, self._hosts, self._at = folder, hosts, at
        folder.mkdir()
        self._settings = folder / "spark.conf"
        lines = [f"{key} {value}" for key, value in settings.items()]
        self._settings.write_text("\n".join([*lines, ""]))
        self.start_master()

    @property
    def master(self) -> str:
        return f"spark://{self._hosts[self._at].address}:{PORT}"

    def start_master(self) -> None:
        """Returns when it listens."""
        ports = ("--port", str(PORT), "--webui-port", str(UI_PORT))
        self._start(self._at, "master", *ports, name="Master")
        eventually(lambda: self._hosts[self._at].listens(UI_PORT), f"its master: see {self.folder}", WAIT_S)

    def start_worker(self, at: str, **env: str) -> None:
        """With room for two applications. `env`: also of the Python of its executors."""
        words = ("--cores", str(2 * CORES), "--memory", "1g", "--webui-port", "8081", self.master)
        work = str(self.folder / f"work-{at}")
        self._start(at, "worker", "--work-dir", work, *words, name="Worker", **env)

    def await_workers(self, count: int) -> None:
        """Until so many are registered."""
        eventually(
            lambda: sum(one["state"] == "ALIVE" for one in self.state()["workers"]) == count,
            f"{count} Spark workers: see {self.folder}",
            WAIT_S,
            0.2,
        )

    def state(self) -> dict[str, Any]:
        """What its master says; no workers: it does not yet."""
        address = f"http://{self._hosts[self._at].address}:{UI_PORT}/json/"
        try:
            with self._hosts.inside(), urllib.request.urlopen(address, timeout=WAIT_S) as answer:
                return dict(json.load(answer))
        except (OSError, ValueError):  # ValueError: it has only begun to serve
            return {"workers": []}

    def _start(self, at: str, kind: str, *words: str, name: str, **env: str) -> None:
        host = self._hosts[at]
        own = {"SPARK_HOME": str(HOME), "SPARK_SCALA_VERSION": "2.13", "PYSPARK_PYTHON": sys.executable}
        host.start(
            self.folder / f"{kind}-{at}.log",
            *(*JAVA, f"org.apache.spark.deploy.{kind}.{name}", "--host", host.name),
            *("--properties-file", str(self._settings), *words),
            env=own | env,
        )


class ClusterOnSpark(HostedCluster):
    """Our cluster, whose workers Spark starts: nothing says where its own driver is."""

    target = "spark"

    def __init__(
        self, folder: Path, hosts: Hosts, spark: SparkOnHosts, options: Mapping[str, str] = NONE
    ) -> None:
        super().__init__(folder, hosts, {"spark.master": spark.master, **SPARK, **options})


def secured(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """What Spark's own processes are given, and what our cluster is: they know each other by a secret, and
    what they say is encrypted."""
    secret = folder / "secret"
    secret.write_text(SECRET)
    on = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
    own = {"spark.authenticate.secret": f"${{file:{secret}}}"}
    return on | {"spark.authenticate.secret": SECRET}, on | own


def executors(host: Host) -> list[psutil.Process]:
    """The JVMs of Spark's executors there."""
    found = [psutil.Process(one.pid) for one in host.processes()]
    return [one for one in found if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in one.cmdline()]


def pages(host: Host, port: int, paths: Iterable[str]) -> str:
    """What a UI says there."""
    said = []
    with host.inside():
        for path in paths:
            with urllib.request.urlopen(f"http://{host.address}:{port}{path}", timeout=WAIT_S) as answer:
                said.append(answer.read().decode())
    return "\n".join(said)

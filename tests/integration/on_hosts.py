"""What tests of several hosts share: a standalone cluster whose master and workers are on hosts of their own,
each with a home that no other one has, so that nothing is found by files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.eventually import WAIT_S, eventually
from tests.integration.several_masters import Master, Program
from tests.support.servers.hosts import Host, Hosts, missing

NEEDS_HOSTS: Final = pytest.mark.skipif(bool(missing()), reason=missing() or "there are hosts")
PIPELINES: Final = Path(__file__).parent / "pipelines"
OPEN: Final = {"jobmanager.bind-host": "0.0.0.0", "rest.bind-address": "0.0.0.0", "rest.bind-port": "0"}
_PROGRAM: Final = (sys.executable, "-m", "unistream.cli.main")
QUICK: Final = {"heartbeat.interval": "500 ms", "heartbeat.timeout": "2 min"}


class HostedCluster:
    """A cluster on hosts.

    Args:
        folder: Of all that it has.
        options: More of its master's.

    Attributes:
        target: Where its workers come from.
    """

    target = "standalone"

    def __init__(self, folder: Path, hosts: Hosts, options: Mapping[str, str] | None = None) -> None:
        self.folder, self.hosts = folder, hosts
        self._options = {**OPEN, **QUICK, **(options or {})}
        self.programs: Final[list[Program]] = []
        """All that it has started."""

    def master(self, at: str, name: str = "master", **options: str) -> Master:
        """A master, which clients reach by the address of its host. `options`: see `Masters.start`."""
        host = self.hosts[at]
        given = {"rest.address": host.address, "jobmanager.rpc.address": host.address, "rest.port": "0"}
        given |= {**self._options, **{key.replace("_", "."): value for key, value in options.items()}}
        workdir = str(self.folder / f"work-{name}")
        words = ["cluster", "start", "-t", self.target, "--json", "--workdir", workdir, *_defined(given)]
        master = Master(self.folder, name, words, self.env(host), host.wrapper)
        self.programs.append(master)
        master.await_line()
        return master

    def program(self, at: str, name: str, *words: str, env: Mapping[str, str] | None = None) -> Program:
        """Another program of the command line."""
        host = self.hosts[at]
        program = Program(self.folder, name, words, {**self.env(host), **(env or {})}, host.wrapper)
        self.programs.append(program)
        return program

    def worker(self, at: str, url: str, token: str, slots: str = "1", **options: str) -> Program:
        """A worker that has joined, and is registered. `options`: see `Masters.start`."""
        name = f"worker-{at}-{len(self.programs)}"
        words = ["taskmanager", "start", "-m", url, "--join", token, "--slots", slots, "--json"]
        given = {key.replace("_", "."): value for key, value in options.items()}
        worker = self.program(at, name, *words, *_defined(given))
        eventually(lambda: bool(worker.lines) or not worker.lives, f"{name} is registered", WAIT_S)
        assert worker.lines, worker.err
        return worker

    def says(self, at: str, *words: str, env: Mapping[str, str] | None = None, code: int = 0) -> str:
        """What a command says there."""
        host = self.hosts[at]
        command = [*_PROGRAM, *words]
        return host.run(*command, env={**self.env(host), **(env or {})}, code=code).strip()

    def env(self, host: Host) -> dict[str, str]:
        """Of its programs."""
        path = os.pathsep.join([str(PIPELINES), os.environ.get("PYTHONPATH", "")])
        return {
            "UNISTREAM_HOME": str(self.folder / f"home-{host.name}"),
            "PYTHONPATH": path,
            "KEYED_FILES": str(self.folder / "files"),
        }

    def clear(self) -> None:
        for program in self.programs:
            program.clear()


def _defined(options: Mapping[str, str]) -> list[str]:
    return [word for key, value in options.items() for word in ("-D", f"{key}={value}")]


@contextmanager
def cluster_on(
    folder: Path, hosts: Hosts, options: Mapping[str, str] | None = None
) -> Iterator[HostedCluster]:
    """A cluster whose processes are killed at the end."""
    cluster = HostedCluster(folder, hosts, options)
    try:
        yield cluster
    finally:
        cluster.clear()

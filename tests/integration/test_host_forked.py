"""Workers that are forked: what each of them has of its own, and the end of the process they come from."""

from __future__ import annotations

import os
import queue
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.eventually import WAIT_S, eventually
from tests.integration.test_host_local import Losses, await_log, spec_of
from unistream.host import forked
from unistream.host.local import LocalProcessHost

pytestmark = pytest.mark.skipif(not forked.can_fork(), reason="workers are forked on Linux only")

PROGRAM = """
    import os, random, sys, tempfile, threading
    import numpy
    print(os.getpid(), os.getppid())
    print(random.random(), numpy.random.random())
    print(os.environ.get("OF_THE_WORKER"), os.environ.get("OMP_NUM_THREADS"), "SECRET" in os.environ)
    print(os.getcwd(), sys.path[0], tempfile.gettempdir(), sys.argv)
    print(threading.active_count(), os.getpgid(0) == os.getpid(), os.path.exists("/proc/self/fd/3"))
    sys.stdout.flush()
    sys.stdin.read()
    threading.Event().wait()
"""


@pytest.fixture
def losses() -> Losses:
    return queue.Queue()


class Hosts:
    """Hosts whose workers run `PROGRAM`, each with an environment of its own."""

    def __init__(self, folder: Path, losses: Losses) -> None:
        self._folder = folder
        self._losses = losses
        self._hosts: list[LocalProcessHost] = []
        (folder / "program.py").write_text(textwrap.dedent(PROGRAM))

    def worker(self, **environment: str) -> list[str]:
        """What a new worker prints."""
        env = {**os.environ, "PYTHONPATH": str(self._folder), **environment}
        host = LocalProcessHost(lambda *lost: self._losses.put(lost), env=env, module="program", forks=True)
        self._hosts.append(host)
        spec = spec_of(len(self._hosts), self._folder)
        host.start(spec)
        return await_log(spec, 5)

    def close(self) -> None:
        for host in self._hosts:
            host.close()


@pytest.fixture
def hosts(tmp_path: Path, losses: Losses) -> Iterator[Hosts]:
    hosts = Hosts(tmp_path, losses)
    yield hosts
    hosts.close()


def server_of(printed: list[str]) -> int:
    return int(printed[0].split()[1])


def test_each_has_its_own_environment_folder_and_random_numbers(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = hosts.worker(OF_THE_WORKER="one", SECRET="x")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    second = hosts.worker(OF_THE_WORKER="two")
    assert server_of(first) == server_of(second) != os.getpid()
    assert set(first[1].split()).isdisjoint(second[1].split())
    assert (first[2].split()[0], second[2].split()[0]) == ("one", "two")
    assert (first[2].split()[2], second[2].split()[2]) == ("True", "False")
    assert second[3].split()[:2] == [str(tmp_path / "elsewhere")] * 2
    assert "program" in second[3].split()[-1]
    assert second[4].split() == ["1", "True", "False"], (
        "one thread, a group of its own, no descriptor of others"
    )


def test_a_variable_that_libraries_read_when_they_are_loaded_is_that_of_the_worker(hosts: Hosts) -> None:
    first, second = hosts.worker(OMP_NUM_THREADS="1"), hosts.worker(OMP_NUM_THREADS="2")
    assert (first[2].split()[1], second[2].split()[1]) == ("1", "2")
    assert server_of(first) != server_of(second)


def test_what_the_program_has_changed_of_itself_is_that_of_its_next_worker(hosts: Hosts) -> None:
    first = hosts.worker()
    old = os.umask(0o027)
    try:
        second = hosts.worker()
    finally:
        os.umask(old)
    assert [umask_of(first), umask_of(second)] == [old, 0o027]
    assert server_of(hosts.worker()) == server_of(first)


def umask_of(printed: list[str]) -> int:
    status = Path(f"/proc/{printed[0].split()[0]}/status").read_text()
    return int(status.partition("Umask:")[2].split()[0], 8)


def test_when_their_server_is_killed_all_its_workers_are_lost_and_the_next_one_has_another(
    hosts: Hosts, losses: Losses
) -> None:
    first, second = hosts.worker(), hosts.worker()
    psutil.Process(server_of(first)).kill()
    reasons = {losses.get(timeout=WAIT_S)[1] for _ in range(2)}
    assert all("the process from which it was forked has ended" in reason for reason in reasons)
    workers = [int(printed[0].split()[0]) for printed in (first, second)]
    eventually(lambda: not any(psutil.pid_exists(pid) for pid in workers), "both have ended", WAIT_S)
    assert server_of(hosts.worker()) != server_of(first)


def test_a_server_ends_when_nobody_has_used_it_for_a_while(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forked, "LINGER_S", 0.0)
    server = psutil.Process(server_of(hosts.worker(PYTHONHASHSEED="5")))
    assert server.ppid() == os.getpid()
    hosts.close()
    assert psutil.wait_procs([server], timeout=WAIT_S)[1] == []


def test_one_that_is_warm_serves_the_worker_that_comes(hosts: Hosts, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONHASHSEED": "7"}
    forked.warm(sys.executable, "program", env)

    def servers() -> list[int]:
        return [
            child.pid
            for child in psutil.Process().children()
            if child.status() != psutil.STATUS_ZOMBIE
            and "unistream.host.fork_server" in child.cmdline()
            and child.environ().get("PYTHONHASHSEED") == "7"
        ]

    eventually(lambda: len(servers()) == 1, "the server has been started", WAIT_S)
    assert [server_of(hosts.worker(PYTHONHASHSEED="7"))] == servers()

"""The hosts of tests: they have names and addresses, are cut off and healed, and leave nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.eventually import WAIT_S, eventually
from tests.integration.on_hosts import NEEDS_HOSTS
from tests.support.servers.hosts import NAMESPACES, OWN_TMP, Hosts, remove_stale
from tests.support.servers.slow_cable import NO_CABLES

pytestmark = NEEDS_HOSTS

PORT = 5000
DELAY_MS = 50
KNOCK = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()
    print("there")
except OSError:
    print("away")
"""
KILLED = """
import os, signal, sys
from pathlib import Path
from tests.support.servers.hosts import Hosts
hosts = Hosts(Path(sys.argv[1]), "a").__enter__()
hosts["a"].start(Path(os.devnull), "setpriv", "--pdeathsig", "clear", "sleep", "1000")
print(hosts["a"].namespace, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Something listens on b, at both addresses."""
    with Hosts(tmp_path, "a", "b", "c") as hosts, ExitStack() as closing:
        with hosts["b"].inside():
            closing.enter_context(socket.create_server(("0.0.0.0", PORT)))
            closing.enter_context(socket.create_server(("::", PORT + 1), family=socket.AF_INET6))
        yield hosts


def reaches(hosts: Hosts, at: str, name: str = "host-b", port: int = PORT) -> bool:
    return hosts[at].python(KNOCK, name, str(port)).strip() == "there"


def test_a_host_has_a_name_and_addresses_and_temporary_files_of_its_own(hosts: Hosts) -> None:
    assert hosts["a"].run("hostname").strip() == "host-a"
    assert reaches(hosts, "a")
    assert reaches(hosts, "a", "six-b", PORT + 1)
    hosts["a"].run("touch", f"{OWN_TMP}/own")
    assert hosts["a"].run("ls", OWN_TMP).split() == ["own"]
    assert hosts["b"].run("ls", OWN_TMP).split() == []
    assert not (Path(OWN_TMP) / "own").exists()
    with hosts.inside():
        socket.create_connection((hosts["b"].address, PORT), WAIT_S).close()


def test_a_link_is_cut_and_healed(hosts: Hosts) -> None:
    hosts["b"].cut()
    assert not reaches(hosts, "a")
    hosts["b"].heal()
    eventually(lambda: reaches(hosts, "a"), "it is there again", WAIT_S)
    assert reaches(hosts, "a", "six-b", PORT + 1)


def test_two_hosts_are_parted_and_others_are_not(hosts: Hosts) -> None:
    hosts.part("a", "b")
    assert not reaches(hosts, "a")
    assert not reaches(hosts, "a", "six-b", PORT + 1)
    assert reaches(hosts, "c")
    hosts.mend("a", "b")
    assert reaches(hosts, "a")
    assert reaches(hosts, "a", "six-b", PORT + 1)


@pytest.mark.skipif(bool(NO_CABLES), reason=NO_CABLES or "there are cables")
def test_a_host_is_slow_and_loses_what_it_is_sent_and_keeps_its_connections(hosts: Hosts) -> None:
    with hosts["b"].inside():
        server = socket.create_server(("0.0.0.0", PORT + 2))
    with server, hosts["a"].inside():
        client = socket.create_connection((hosts["b"].address, PORT + 2), WAIT_S)
        peer, _ = server.accept()
    with client, peer:
        client.settimeout(WAIT_S)
        peer.settimeout(WAIT_S)
        hosts["b"].slow(DELAY_MS, 5.0)
        assert exchange_s(client, peer) >= 2 * DELAY_MS / 1000
        payload = os.urandom(1 << 20)
        sending = threading.Thread(target=client.sendall, args=(payload,))
        sending.start()
        received = bytearray()
        while len(received) < len(payload):
            received += peer.recv(1 << 16)
        sending.join(WAIT_S)
        assert received == payload
        assert hosts["b"].fast() > 0
        exchange_s(client, peer)


def exchange_s(one: socket.socket, other: socket.socket) -> float:
    """Seconds for a byte there and back."""
    began_s = time.monotonic()
    for sender, receiver in ((one, other), (other, one)):
        sender.sendall(b".")
        assert receiver.recv(1) == b"."
    return time.monotonic() - began_s


def test_what_a_host_runs_is_killed_and_nothing_else(hosts: Hosts, tmp_path: Path) -> None:
    shell = hosts["a"].start(tmp_path / "log", "sh", "-c", "sleep 1000 & sleep 1000")
    other = hosts["c"].start(tmp_path / "log", "sleep", "1000")
    eventually(lambda: len(hosts["a"].processes()) == 3, "all run", WAIT_S)
    hosts["a"].kill()
    assert shell.wait(WAIT_S) == -signal.SIGKILL
    assert hosts["a"].processes() == []
    assert other.poll() is None


def test_hosts_of_a_test_that_was_killed_are_removed_by_the_next(tmp_path: Path) -> None:
    with Hosts(tmp_path / "others", "a") as others:
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(tmp_path / "killed")],
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_S,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
        left = done.stdout.strip()
        pids = [psutil.Process(int(pid)) for pid in _pids(left)]
        assert pids
        remove_stale()
        _, alive = psutil.wait_procs(pids, timeout=WAIT_S)
        assert not alive
        assert not (NAMESPACES / left).exists()
        assert others["a"].run("hostname").strip() == "host-a", "those of a test that runs are left alone"
    assert not [path for path in NAMESPACES.glob(f"*-{os.getpid()}-*") if others.switch in path.name]


def _pids(namespace: str) -> list[str]:
    done = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=True)
    return done.stdout.split()

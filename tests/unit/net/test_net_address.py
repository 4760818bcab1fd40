"""Where servers listen, and what they leave behind: nothing."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.eventually import WAIT_S
from unistream.base.errors import ConfigError
from unistream.base.hosts import is_loopback
from unistream.net.address import (
    FOLDER_PREFIX,
    UNIX_SCHEME,
    SocketFolder,
    break_connections,
)
from unistream.net.folder import remove_stale_folders


@pytest.fixture
def short_tmp(tmp_path: Path) -> Path:
    """A folder whose path leaves room for a socket's name."""
    folder = Path("/tmp") / f"us-{os.getpid()}-{tmp_path.name[-20:]}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("worker.example", False),
    ],
)
def test_loopback_is_told_from_the_network(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_the_folder_is_private_and_goes_with_close(short_tmp: Path) -> None:
    folder = SocketFolder(str(short_tmp))
    path = Path(folder.socket_path).parent
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    folder.close()
    folder.close()
    assert list(short_tmp.iterdir()) == []


def test_a_folder_in_use_is_left_alone(short_tmp: Path) -> None:
    folder = SocketFolder(str(short_tmp))
    remove_stale_folders(short_tmp, FOLDER_PREFIX)
    assert Path(folder.socket_path).parent.exists()
    folder.close()


def test_the_folder_of_a_killed_process_is_removed_by_the_next(short_tmp: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from unistream.net.address import SocketFolder\n"
        "print(SocketFolder(sys.argv[1]).socket_path, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(short_tmp)], stdout=subprocess.PIPE, timeout=WAIT_S, check=False
    )
    left_behind = Path(done.stdout.decode().strip()).parent
    assert left_behind.exists()
    folder = SocketFolder(str(short_tmp))
    assert not left_behind.exists()
    folder.close()


def test_a_path_too_long_for_a_socket_is_refused_and_nothing_stays(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    with pytest.raises(ConfigError, match="choose a folder with a shorter one"):
        SocketFolder(str(deep))
    assert list(deep.iterdir()) == []


def test_a_folder_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match="/nowhere/at/all: No such file"):
        SocketFolder("/nowhere/at/all")


def test_only_connections_accepted_on_the_address_are_broken(short_tmp: Path) -> None:
    def pair(name: str) -> tuple[socket.socket, socket.socket, socket.socket]:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(short_tmp / name))
        listener.listen()
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(5)
        client.connect(str(short_tmp / name))
        return listener, client, listener.accept()[0]

    one, other = pair("one"), pair("other")
    break_connections(f"{UNIX_SCHEME}{short_tmp}/one", 0)
    assert one[1].recv(1) == b""
    other[2].sendall(b"x")
    assert other[1].recv(1) == b"x"
    for end in (*one, *other):
        end.close()

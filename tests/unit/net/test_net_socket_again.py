"""A unix socket that a cleaner of temporary files has removed is made again, under the same address."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.eventually import WAIT_S
from unistream.base.errors import ConfigError, UnistreamError
from unistream.base.ids import TaskManagerId
from unistream.client.remote.rest_client import Poll
from unistream.model.codec import encode
from unistream.model.messages import Ack, Ping
from unistream.net.address import FOLDER_PREFIX, UNIX_SCHEME
from unistream.net.client import FlightControlClient
from unistream.net.folder import PrivateFolder, remove_stale_folders
from unistream.net.server import FlightServer

PING = Ping(task_manager=TaskManagerId("tm"))


@pytest.fixture
def short_tmp(tmp_path: Path) -> Iterator[Path]:
    folder = Path("/tmp") / f"us-{os.getpid()}-{tmp_path.name[-20:]}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def server(short_tmp: Path) -> Iterator[FlightServer]:
    server = FlightServer(
        "127.0.0.1",
        control=lambda _request, _caller="": encode(Ack()),
        partitions=None,
        unix_dir=str(short_tmp),
    )
    yield server
    server.close()


def own_folder(server: FlightServer) -> Path:
    return Path(server.address.removeprefix(UNIX_SCHEME)).parent


def await_answer(address: str) -> None:
    poll = Poll(WAIT_S)
    while poll.next():
        client = FlightControlClient(address, 1.0)
        try:
            assert client.call(PING) == Ack()
        except UnistreamError:
            continue
        else:
            return
        finally:
            client.close()
    raise AssertionError(f"nobody listens at {address}")


def _everything(folder: Path) -> None:
    shutil.rmtree(folder)


def _the_root_too(folder: Path) -> None:
    shutil.rmtree(folder.parent)


def _the_socket(folder: Path) -> None:
    (folder / "flight.sock").unlink()


def _all_files(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.parametrize("remove", [_everything, _the_root_too, _the_socket, _all_files])
def test_who_comes_later_is_answered_at_the_same_address(
    server: FlightServer, short_tmp: Path, remove: Callable[[Path], None]
) -> None:
    early = FlightControlClient(server.address)
    assert early.call(PING) == Ack()
    for _ in range(2):
        remove(own_folder(server))
        await_answer(server.address)
    assert early.call(PING) == Ack(), "a connection that was there goes on"
    early.close()
    assert own_folder(server).stat().st_mode & 0o777 == 0o700
    remove_stale_folders(short_tmp, FOLDER_PREFIX)
    assert own_folder(server).is_dir(), "it is locked as before"
    server.close()
    assert not own_folder(server).exists()


def test_a_folder_is_locked_again_when_only_its_lock_was_removed(short_tmp: Path) -> None:
    folder = PrivateFolder(short_tmp, "us-")
    (folder.path / "kept").write_text("x")
    (folder.path / "lock").unlink()
    folder.restore()
    remove_stale_folders(short_tmp, "us-")
    assert (folder.path / "kept").read_text() == "x"
    folder.close()
    assert list(short_tmp.iterdir()) == []


def test_what_stands_in_its_place_is_not_taken(short_tmp: Path) -> None:
    folder = PrivateFolder(short_tmp, "us-")
    shutil.rmtree(folder.path)
    elsewhere = short_tmp / "elsewhere"
    elsewhere.mkdir()
    folder.path.symlink_to(elsewhere)
    with pytest.raises(ConfigError, match="something else is there"):
        folder.restore()
    assert list(elsewhere.iterdir()) == []
    folder.close()


def test_a_closed_server_listens_no_more(server: FlightServer) -> None:
    server.close()
    assert not own_folder(server).exists()
    with socket.socket(socket.AF_UNIX) as late, pytest.raises(OSError, match="No such file"):
        late.connect(server.address.removeprefix(UNIX_SCHEME))

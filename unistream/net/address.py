"""Where a server listens: a unix socket in a private folder on one host, TCP between hosts.

A unix socket carries about twice what loopback TCP does, and file permissions guard it: its folder is
0700. The folder also holds a lock that lives as long as the process, so that a later process can tell a
folder that was left behind (killed owner) from one in use, whatever happened to the process ids.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from unistream.base.errors import ConfigError

UNIX_SCHEME: Final = "grpc+unix://"
TCP_SCHEME: Final = "grpc+tcp://"
SOCKET_PATH_BYTES_MAX: Final = 100  # sun_path holds 107 on Linux, 103 on macOS

_FOLDER_PREFIX: Final = "unistream-flight-"
_NEW_PREFIX: Final = ".unistream-flight-"  # not yet locked: a cleaner must not look at it
_LOCK_NAME: Final = "lock"
_SOCKET_NAME: Final = "flight.sock"


def is_loopback(host: str) -> bool:
    """True for `localhost` and every loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def advertised_host(bind_host: str) -> str:
    """What peers are told to connect to; the wildcard address names no host."""
    return socket.getfqdn() if bind_host in ("0.0.0.0", "::") else bind_host  # noqa: S104 - compared, not bound


class SocketFolder:
    """A private folder for one server's unix socket, removed by `close` or by a later process.

    Args:
        parent: Where to make it; None: the system's folder for temporary files.

    Raises:
        ConfigError: `parent` cannot be written, or its path is too long for a socket.
    """

    def __init__(self, parent: str | None) -> None:
        root = Path(parent or _short_enough(tempfile.gettempdir()))
        try:
            remove_stale_folders(root)
            new = Path(tempfile.mkdtemp(prefix=_NEW_PREFIX, dir=root))
            self._lock = os.open(new / _LOCK_NAME, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self._path = new.rename(root / (_FOLDER_PREFIX + new.name.removeprefix(_NEW_PREFIX)))
        except OSError as error:
            raise ConfigError(f"no unix socket can be made in {root}: {error.strerror}") from error
        if len(os.fsencode(self.socket_path)) > SOCKET_PATH_BYTES_MAX:
            path = self.socket_path
            self.close()
            raise ConfigError(
                f"the unix socket {path} has a path of more than {SOCKET_PATH_BYTES_MAX} B;"
                " choose a folder with a shorter one"
            )

    @property
    def socket_path(self) -> str:
        return str(self._path / _SOCKET_NAME)

    def close(self) -> None:
        """Removes the folder; may be called again."""
        if self._lock >= 0:
            shutil.rmtree(self._path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def remove_stale_folders(root: Path) -> None:
    """Removes socket folders below `root` whose process is gone; those of others are left alone."""
    for folder in root.glob(_FOLDER_PREFIX + "*"):
        try:
            lock = os.open(folder / _LOCK_NAME, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # another user's, or another cleaner was faster
            continue
        with contextlib.closing(os.fdopen(lock)):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # its owner lives
                continue
            shutil.rmtree(folder, ignore_errors=True)


def break_connections(address: str) -> None:
    """Shuts down every connection that was accepted on `address` by this process.

    gRPC's blocking server ends a call only when its peer takes part; a peer that has stopped reading
    would keep `close` waiting for ever. Without its connection, every read and write of a call fails.
    """
    for connection in _own_sockets():
        with connection, contextlib.suppress(OSError):  # OSError: closed meanwhile
            if _accepted_on(connection, address):
                connection.shutdown(socket.SHUT_RDWR)


def _own_sockets() -> Iterator[socket.socket]:
    """A duplicate of each socket of this process; the caller closes it."""
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                yield socket.socket(fileno=os.dup(int(name)))


def _accepted_on(connection: socket.socket, address: str) -> bool:
    connection.getpeername()  # OSError: it only listens
    own = connection.getsockname()
    if address.startswith(UNIX_SCHEME):
        return bool(own == address.removeprefix(UNIX_SCHEME))
    return isinstance(own, tuple) and str(own[1]) == address.rpartition(":")[2]


def _short_enough(folder: str) -> str:
    """`folder`, or /tmp where its path would leave no room for the socket's name."""
    name_bytes = 2 + len(_FOLDER_PREFIX) + 8 + len(_SOCKET_NAME)
    return folder if len(os.fsencode(folder)) + name_bytes <= SOCKET_PATH_BYTES_MAX else "/tmp"  # noqa: S108

"""Where a server listens: a unix socket in a private folder on one host, TCP between hosts.

File permissions guard a unix socket (its folder is private), and it needs no port. A folder that a killed
process has left is removed by the next server on the machine.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from unistream.base.errors import ConfigError
from unistream.base.hosts import in_url
from unistream.model.credentials import TLS, PeerAddress
from unistream.net.folder import PrivateFolder

UNIX_SCHEME: Final = "grpc+unix://"
TCP_SCHEME: Final = "grpc+tcp://"
TLS_SCHEME: Final = f"{TLS}://"
SOCKET_PATH_BYTES_MAX: Final = 100  # sun_path holds 107 on Linux, 103 on macOS

SOCKET_PROBE_S: Final = 1.0  # a server that lives accepts at once: the kernel does

FOLDER_PREFIX: Final = "unistream-flight-"

_SOCKET_NAME: Final = "flight.sock"


def own_address_to(address: str) -> str:
    """The address of this host from which it reaches a process; nothing is sent.

    Args:
        address: A `model.credentials.PeerAddress` over TCP.

    Raises:
        ConfigError: this host knows no way there.
    """
    parts = urlsplit(PeerAddress.parse(address).location)
    try:
        family, kind, _, _, there = socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(there)  # chooses a route, no more
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ConfigError(f"this host knows no way to {parts.hostname}: {error.strerror}") from error


def check_bind(host: str, port: int) -> None:
    """Raises ConfigError: nothing can listen there. `port` 0: at none."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as error:
        raise ConfigError(f"cannot listen on {in_url(host)}:{port}: {error.strerror}") from error


def is_of_peer(path: str) -> bool:
    """Whether a peer with the same user listens on that unix socket of this host.

    The path comes from another host, where it has an owner; here anybody may have made it, to be taken for
    the peer. Or the folder is on a disk that hosts share, and nobody listens here.
    """
    try:
        if any(os.stat(one).st_uid != os.geteuid() for one in (path, os.path.dirname(path))):
            return False
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(SOCKET_PROBE_S)
            probe.connect(path)
    except (OSError, ValueError):  # ValueError: no path
        return False
    return True


class SocketFolder(PrivateFolder):
    """A private folder for one server's unix socket, removed by `close`.

    Args:
        parent: Where to create it; None: the system's folder for temporary files.

    Raises:
        ConfigError: `parent` cannot be written, or its path is too long for a socket.
    """

    def __init__(self, parent: str | None) -> None:
        super().__init__(Path(parent or _short_enough(tempfile.gettempdir())), FOLDER_PREFIX)
        path = self.socket_path
        if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
            self.close()
            raise ConfigError(
                f"the unix socket {path} has a path of more than {SOCKET_PATH_BYTES_MAX} B;"
                " choose a folder with a shorter one"
            )

    @property
    def socket_path(self) -> str:
        return str(self.path / _SOCKET_NAME)

    @property
    def has_socket(self) -> bool:
        """False: the socket was removed, as cleaners of temporary files do even if it is in use."""
        return os.path.exists(self.socket_path)


def break_connections(location: str, port: int) -> None:
    """Shuts down every connection that was accepted on `location` by this process. `port`: of a TCP one.

    gRPC's blocking server ends a call only together with its peer; one that has stopped reading would block
    `close` for ever. Without its connection, every read and write of a call fails.
    """
    for connection in _own_sockets():
        with connection, contextlib.suppress(OSError):  # OSError: closed meanwhile
            if _accepted_on(connection, location, port):
                connection.shutdown(socket.SHUT_RDWR)


def _own_sockets() -> Iterator[socket.socket]:
    """A duplicate of each socket of this process; the caller closes it."""
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                yield socket.socket(fileno=os.dup(int(name)))


def _accepted_on(connection: socket.socket, location: str, port: int) -> bool:
    connection.getpeername()  # OSError: it only listens
    own = connection.getsockname()
    if location.startswith(UNIX_SCHEME):
        return bool(own == location.removeprefix(UNIX_SCHEME))
    return isinstance(own, tuple) and own[1] == port


def _short_enough(folder: str) -> str:
    """`folder`, or /tmp if its path leaves no room for the socket's name."""
    name_bytes = 2 + len(FOLDER_PREFIX) + 8 + len(_SOCKET_NAME)
    return folder if len(os.fsencode(folder)) + name_bytes <= SOCKET_PATH_BYTES_MAX else "/tmp"  # noqa: S108

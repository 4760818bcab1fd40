"""Addresses of ZooKeeper servers, as in a connect string: ``h1:2181,h2,[::1]:2182/chroot``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from unistream.base.errors import ConfigError

ZOOKEEPER_SCHEME: Final = "zookeeper://"
ZOOKEEPER_PORT: Final = 2181  # ZooKeeper's own
SERVERS_MAX: Final = 64  # an ensemble has 3 to 7; a longer text is a mistake
PATH_CHARACTERS_MAX: Final = 512

_SERVER: Final = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252}))(?::(?P<port>[0-9]{1,5}))?"
)
_COMPONENT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=-]{0,254}")


@dataclass(frozen=True, slots=True)
class ZooKeeperServers:
    """Where an ensemble is reached.

    Attributes:
        servers: Each ``host:port``.
        chroot: The folder of the ensemble that counts as its root: "" or such as ``/team/streams``.
    """

    servers: tuple[str, ...]
    chroot: str = ""

    def __str__(self) -> str:
        return ",".join(self.servers) + self.chroot


def parse_zookeeper_servers(text: str) -> ZooKeeperServers:
    """A connect string. Port 2181 is the default.

    >>> str(parse_zookeeper_servers("zk1, zk2:2182/team"))
    'zk1:2181,zk2:2182/team'
    """
    hosts, _, path = text.strip().partition("/")
    chroot = parse_path("/" + path.rstrip("/")) if path.rstrip("/") else ""
    names = hosts.split(",")
    if len(names) > SERVERS_MAX:
        raise ConfigError(f"{len(names)} ZooKeeper servers, at most {SERVERS_MAX} are supported")
    return ZooKeeperServers(tuple(_server(name.strip(), text) for name in names), chroot)


def parse_zookeeper_address(text: str) -> ZooKeeperServers:
    """``zookeeper://h1:2181,h2,h3/chroot``: a connect string with a scheme, for command lines.

    Raises:
        ConfigError: another scheme, or not a connect string.
    """
    address = text.strip()
    if not address.lower().startswith(ZOOKEEPER_SCHEME):
        raise ConfigError(f"{text[:80]!r} is not an address such as 'zookeeper://h1:2181,h2:2181,h3:2181'")
    return parse_zookeeper_servers(address[len(ZOOKEEPER_SCHEME) :])


def parse_path(text: str) -> str:
    """An absolute path of plain components such as ``/unistream`` or ``/team/streams``."""
    path = text.strip()
    plain = all(_COMPONENT.fullmatch(part) for part in path[1:].split("/"))
    if not path.startswith("/") or not plain or len(path) > PATH_CHARACTERS_MAX:
        raise ConfigError(
            f"{text[:80]!r} is not a path such as '/unistream': letters, digits, '_', '-', '.' and '=' "
            "between slashes"
        )
    return path


def parse_cluster_id(text: str) -> str:
    """One plain component, the name of a cluster's folder."""
    name = text.strip()
    if _COMPONENT.fullmatch(name) is None:
        raise ConfigError(
            f"{text[:80]!r} is not a cluster id: at most 255 letters, digits, '_', '-', '.' and '=', the "
            "first one a letter, a digit or '_'"
        )
    return name


def _server(name: str, text: str) -> str:
    found = _SERVER.fullmatch(name)
    port = int(found["port"] or ZOOKEEPER_PORT) if found else 0
    if found is None or not 0 < port <= 65_535:
        raise ConfigError(f"{text[:80]!r} does not list servers such as 'h1:2181,h2:2181,h3:2181'")
    return f"{found['host']}:{port}"

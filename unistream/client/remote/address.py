"""Where a cluster is reached: at a fixed URL, or wherever its leader is at the moment."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from unistream.base.closing import Closing
from unistream.base.config import (
    HA_CLUSTER_ID,
    HA_TYPE,
    REST_ADDRESS,
    REST_PORT,
    REST_TLS,
    ZOOKEEPER_QUORUM,
    ZOOKEEPER_ROOT,
    Configuration,
)
from unistream.base.errors import ConfigError, Unreachable
from unistream.base.hosts import in_url, is_loopback
from unistream.base.servers import ZOOKEEPER_SCHEME, parse_zookeeper_address
from unistream.client.machine import home
from unistream.client.machine.tokens import entry_at

if TYPE_CHECKING:
    from unistream.client.machine.home import ClusterEntry
    from unistream.port.ha import LeaderRetrieval

_HOST_AND_PORT: Final = re.compile(
    r"(?:(?P<scheme>https?)://)?(?P<host>\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})/?"
)


class LeaderAddress(Protocol):
    """Where the leader of one cluster answers. Thread-safe. Asked before the first call, and again after each
    attempt without an answer: meanwhile another process may have been elected."""

    @property
    def name(self) -> str:
        """The cluster as messages name it: its URL, or where its leader is looked up."""
        ...

    @property
    def is_elected(self) -> bool:
        """It may change, so a client waits for it where nothing listens."""
        ...

    def url(self, timeout_s: float) -> str:
        """The URL of the leader's REST API, without a path.

        Raises:
            Unreachable: nobody leads, or nobody can say, for `timeout_s`.
        """
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class FixedAddress:
    """One URL, such as ``http://127.0.0.1:8081``. Raises ConfigError if it is none."""

    name: str
    is_elected: bool = False

    def __post_init__(self) -> None:
        if not self.name.startswith(("http://", "https://")):
            raise ConfigError(f"{self.name!r} is not the address of a REST API, like http://127.0.0.1:8081")

    def url(self, timeout_s: float) -> str:
        return self.name

    def close(self) -> None:
        """It holds nothing."""


class MachineAddress:
    """A cluster of this machine, wherever it listens: with `rest.port` 0, the default, on another port each
    time that it is started."""

    is_elected = False

    def __init__(self, entry: ClusterEntry) -> None:
        self._entry = entry  # replaced, never changed

    @property
    def name(self) -> str:
        return self._entry.url

    def url(self, timeout_s: float) -> str:
        """Where it listened last, if it does not run now: it may be started again."""
        if not home.is_running(self._entry):
            self._entry = home.successor(self._entry) or self._entry
        return self._entry.url

    def close(self) -> None:
        """It holds nothing."""


class ElectedAddress(Closing):
    """The leader that an election has published.

    Args:
        retrieval: Finds it; closed with this.
        name: Where it is looked up, such as ``zookeeper://host:2181/unistream/default``.
    """

    def __init__(self, retrieval: LeaderRetrieval, name: str) -> None:
        self._retrieval = retrieval
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    @property
    def is_elected(self) -> bool:
        return True

    def url(self, timeout_s: float) -> str:
        leader = self._retrieval.leader(timeout_s)
        if leader is None:
            raise Unreachable(f"nobody leads the cluster at {self._name} now")
        if leader.rest_url is None:
            raise Unreachable(f"the leader of the cluster at {self._name} ({leader.cluster}) has no REST API")
        return leader.rest_url.rstrip("/")

    def close(self) -> None:
        self._retrieval.close()


def options_of(address: str) -> dict[str, str]:
    """The options that name the cluster at this address, as in the configuration of its masters.

    >>> options_of("127.0.0.1:8081")
    {'rest.address': '127.0.0.1', 'rest.port': '8081'}
    >>> options_of("zookeeper://zk1,zk2:2182/team")["high-availability.zookeeper.quorum"]
    'zk1:2181,zk2:2182/team'

    Raises:
        ConfigError: it is none.
    """
    if address.strip().lower().startswith(ZOOKEEPER_SCHEME):
        return {HA_TYPE.key: "zookeeper", ZOOKEEPER_QUORUM.key: str(parse_zookeeper_address(address))}
    found = _HOST_AND_PORT.fullmatch(address.strip())
    if found is None or not 0 < int(found["port"]) < 65_536:
        raise ConfigError(
            f"{address[:80]!r} is not the address of a cluster, like 127.0.0.1:8081 or "
            f"{ZOOKEEPER_SCHEME}zk1:2181,zk2:2181,zk3:2181"
        )
    tls = {} if found["scheme"] is None else {REST_TLS.key: "true" if found["scheme"] == "https" else "false"}
    return {REST_ADDRESS.key: found["host"].strip("[]"), REST_PORT.key: found["port"], **tls}


def url_at(host: str, port: int, tls: bool | None = None) -> str:
    """The URL of a REST API. `tls`: None: what is no loopback address speaks it, and here the cluster's entry
    says.

    >>> url_at("::1", 8081), url_at("jobs.example.com", 8081)
    ('http://[::1]:8081', 'https://jobs.example.com:8081')
    """
    entry = entry_at(host, port) if tls is None else None
    if entry is not None:
        return entry.url
    is_encrypted = not is_loopback(host) if tls is None else tls
    return f"{'https' if is_encrypted else 'http'}://{in_url(host)}:{port}"


def url_of(address: str) -> str:
    """The URL of the REST API at an address as users give it. Raises ConfigError: it is none.

    >>> url_of("127.0.0.1:8081"), url_of("https://jobs:8081")
    ('http://127.0.0.1:8081', 'https://jobs:8081')
    """
    options = Configuration(options_of(address))
    return url_at(options.get(REST_ADDRESS), options.get(REST_PORT), options.find(REST_TLS))


def is_elected(config: Configuration) -> bool:
    """The cluster that it names has several masters, and ZooKeeper knows which one leads."""
    return config.get(HA_TYPE) == "zookeeper"


def retrieval(config: Configuration) -> LeaderRetrieval:
    """Finds the leader of the cluster that it names. Raises ConfigError: how ZooKeeper is reached is not
    said, or not possible."""
    from unistream.ha.zookeeper import ZooKeeperRetrieval, zookeeper_settings

    return ZooKeeperRetrieval(zookeeper_settings(config))


def elected_name(config: Configuration) -> str:
    """Where the leader of the cluster that it names is looked up, for messages."""
    servers, root, id_ = config.get(ZOOKEEPER_QUORUM), config.get(ZOOKEEPER_ROOT), config.get(HA_CLUSTER_ID)
    return f"{ZOOKEEPER_SCHEME}{servers} (cluster {id_} in {root})"


def elected_address(config: Configuration) -> ElectedAddress:
    """The address of the cluster that the configuration names; the caller closes it. Raises ConfigError as
    `retrieval`."""
    return ElectedAddress(retrieval(config), elected_name(config))

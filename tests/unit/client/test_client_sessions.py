"""How a session cluster is named."""

from __future__ import annotations

import pytest

from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.client.job.sessions import find_cluster
from unistream.client.remote.address import options_of

ADDRESS = "zookeeper://zk1,zk2:2182"


@pytest.mark.parametrize(
    ("config", "text"),
    [
        pytest.param({}, ADDRESS, id="by its address"),
        pytest.param(options_of(ADDRESS), None, id="by options"),
    ],
)
def test_one_request_does_not_end_several_masters(config: dict[str, str], text: str | None) -> None:
    with pytest.raises(ConfigError, match="end each master by a signal, or by -m HOST:PORT"):
        find_cluster(Configuration(config), text)


@pytest.mark.parametrize(
    ("address", "options"),
    [
        ("127.0.0.1:8081", {"rest.address": "127.0.0.1", "rest.port": "8081"}),
        (
            "http://host-1:80/",
            {"rest.address": "host-1", "rest.port": "80", "security.ssl.rest.enabled": "false"},
        ),
        (
            "https://host-1:80",
            {"rest.address": "host-1", "rest.port": "80", "security.ssl.rest.enabled": "true"},
        ),
        ("[::1]:8081", {"rest.address": "::1", "rest.port": "8081"}),
        (
            "ZooKeeper://zk1,zk2:2182/team",
            {
                "high-availability.type": "zookeeper",
                "high-availability.zookeeper.quorum": "zk1:2181,zk2:2182/team",
            },
        ),
    ],
)
def test_an_address_is_options(address: str, options: dict[str, str]) -> None:
    assert options_of(address) == options


@pytest.mark.parametrize(
    "address", ["", "host", "host:0", "host:65536", "ftp://host:80", "host:80/path", "a b:1"]
)
def test_what_is_no_address_gets_one_sentence(address: str) -> None:
    with pytest.raises(ConfigError, match="is not the address of a cluster"):
        options_of(address)

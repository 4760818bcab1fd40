"""Addresses of ZooKeeper: connect strings, addresses with a scheme, paths and ids of clusters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unistream.base.errors import ConfigError
from unistream.base.servers import (
    ZooKeeperServers,
    parse_cluster_id,
    parse_path,
    parse_zookeeper_address,
    parse_zookeeper_servers,
)


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("h1", ("h1:2181",), ""),
        ("h1:2182", ("h1:2182",), ""),
        ("h1:2181,h2,h3:2183", ("h1:2181", "h2:2181", "h3:2183"), ""),
        (" h1 , h2 ", ("h1:2181", "h2:2181"), ""),
        ("h1,h2/team/streams", ("h1:2181", "h2:2181"), "/team/streams"),
        ("h1/team/", ("h1:2181",), "/team"),
        ("h1/", ("h1:2181",), ""),
        ("zk-1.example.org,10.0.0.7:1", ("zk-1.example.org:2181", "10.0.0.7:1"), ""),
        ("[::1],[fe80::7]:2182/a", ("[::1]:2181", "[fe80::7]:2182"), "/a"),
    ],
)
def test_servers(text: str, servers: tuple[str, ...], chroot: str) -> None:
    found = parse_zookeeper_servers(text)
    assert found == ZooKeeperServers(servers, chroot)
    assert parse_zookeeper_servers(str(found)) == found
    assert parse_zookeeper_address(f"zookeeper://{text.strip()}") == found
    assert parse_zookeeper_address(f" ZooKeeper://{text.strip()} ") == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "h1,",
        "h1:",
        "h1:0",
        "h1:65536",
        "h1:x",
        "h1:1:2",
        "::1",
        "[::1",
        "h1 h2",
        "-h",
        "ü",
        "h1;h2",
        "a@b",
    ],
)
def test_what_does_not_list_servers(text: str) -> None:
    with pytest.raises(ConfigError, match="does not list servers such as 'h1:2181,h2:2181,h3:2181'"):
        parse_zookeeper_servers(text)
    with pytest.raises(ConfigError):
        parse_zookeeper_address(f"zookeeper://{text}")


@pytest.mark.parametrize(
    "text", ["", "h1:2181", "http://h1:8081", "zookeeper:/h1", "zookeeper:h1", "zk://h1"]
)
def test_another_scheme(text: str) -> None:
    with pytest.raises(ConfigError, match="is not an address such as 'zookeeper://h1:2181,h2:2181,h3:2181'"):
        parse_zookeeper_address(text)


def test_too_many_servers() -> None:
    with pytest.raises(ConfigError, match="65 ZooKeeper servers, at most 64 are supported"):
        parse_zookeeper_servers(",".join(["h"] * 65))


@pytest.mark.parametrize("text", ["/a", "/unistream", "/a/b-c/d_e/f.g/h=1", " /a "])
def test_paths(text: str) -> None:
    assert parse_path(text) == text.strip()


@pytest.mark.parametrize(
    "text",
    ["", "/", "a", "/a/", "//a", "/a//b", "/.", "/..", "/a/../b", "/a b", "/a\x00", "/ü", "/" + "a" * 512],
)
def test_what_is_no_path(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a path such as '/unistream'"):
        parse_path(text)


@pytest.mark.parametrize("text", ["default", "a", "7", "_", "a.b-c_d=e", " a "])
def test_cluster_ids(text: str) -> None:
    assert parse_cluster_id(text) == text.strip()


@pytest.mark.parametrize("text", ["", "/", "a/b", ".", "..", ".a", "-a", "a b", "ü", "a" * 256])
def test_what_is_no_cluster_id(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a cluster id"):
        parse_cluster_id(text)


@given(st.text())
def test_any_text_lists_servers_or_is_refused(text: str) -> None:
    try:
        found = parse_zookeeper_servers(text)
    except ConfigError:
        return
    assert found.servers
    assert parse_zookeeper_servers(str(found)) == found

"""How hosts reach each other: by name, by IPv6, at ports of a range; and what is said of one that is not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.eventually import WAIT_S
from tests.integration.on_hosts import NEEDS_HOSTS, HostedCluster, cluster_on
from tests.support.servers.hosts import Hosts

pytestmark = NEEDS_HOSTS

UNREACHED = "198.18.0.99"
ALL6 = {"jobmanager_bind-host": "::", "rest_bind-address": "::"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[HostedCluster]:
    with Hosts(tmp_path / "hosts", "a", "b", "c") as hosts, cluster_on(tmp_path, hosts) as cluster:
        yield cluster


def test_hosts_reach_each_other_by_names_and_addresses_of_ipv6(cluster: HostedCluster) -> None:
    url = cluster.master("a", **ALL6, rest_address="six-a", jobmanager_rpc_address="six-a").urls[-1]
    port = url.rpartition(":")[2]
    assert url == f"https://six-a:{port}"
    token = cluster.says("a", "cluster", "token", "--uses", "2")
    first = cluster.worker("b", url, token)
    second = cluster.worker("c", f"[{cluster.hosts['a'].ipv6}]:{port}", token)
    for worker in (first, second):
        assert worker.lines[0]["jobmanager"] == "grpc+tls://jobmanager@six-a:6123"
    run = ("run", "keyed_files:some", "-t", "remote", "-m", url, "-p", "2", "--json")
    assert json.loads(cluster.says("a", *run))["state"] == "FINISHED"


def test_a_worker_that_is_not_reached_says_so_and_where_that_is_set(cluster: HostedCluster) -> None:
    url = cluster.master("a").urls[-1]
    token = cluster.says("a", "cluster", "token", "--uses", "2")
    far = {"taskmanager.host": UNREACHED, "taskmanager.bind-host": "0.0.0.0"}
    lost = cluster.worker("b", url, token, **far)
    assert lost.wait() == 1
    [sentence] = lost.err.strip().splitlines()
    assert f"@{UNREACHED}:" in sentence
    assert sentence.endswith(
        "taskmanager.host, taskmanager.bind-host and taskmanager.data.port say where other hosts reach it"
    )
    start = ("taskmanager", "start", "-m", url, "--join", token)
    for key, value, why in (
        ("taskmanager.host", UNREACHED, f"cannot listen on {UNREACHED}:0: Cannot assign requested address"),
        ("taskmanager.host", "no-such-host", "cannot listen on no-such-host:0"),
        ("taskmanager.data.port", "50100-50", "taskmanager.data.port: '50100-50' is no port"),
    ):
        [sentence] = cluster.says("c", *start, "-D", f"{key}={value}", code=2).splitlines()
        assert why in sentence
        assert "taskmanager." in sentence


def test_ports_are_taken_in_turn_and_one_more_worker_says_that_none_is_free(cluster: HostedCluster) -> None:
    url = cluster.master("a").urls[-1]
    token = cluster.says("a", "cluster", "token", "--uses", "9")
    ports = {"taskmanager.data.port": "50100-50101"}
    for _ in range(2):
        cluster.worker("b", url, token, **ports)
    for number in (50_100, 50_101):
        assert cluster.hosts["b"].listens(number)
    third = cluster.program(
        "b", "third", "taskmanager", "start", "-m", url, "-D", "taskmanager.data.port=50100-50101"
    )
    assert third.process.wait(WAIT_S) == 2
    assert "50100: Address already in use; nor is any other of 2 ports free" in third.err
    again = ("cluster", "start", "-t", "standalone", "-D", "jobmanager.bind-host=0.0.0.0")
    refused = cluster.says("a", *again, "--workdir", str(cluster.folder / "again"), code=2)
    assert (
        "the JobManager cannot listen on 0.0.0.0:6123: Address already in use: jobmanager.bind-host"
        in refused
    )

"""A standalone cluster on three hosts: a master, and two workers that have joined with tokens."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final

from deltalake import DeltaTable

from tests.eventually import WAIT_S, eventually
from tests.integration.on_hosts import NEEDS_HOSTS, HostedCluster, cluster_on
from tests.integration.pipelines.keyed_files import CODE_CANARY, write_rows
from tests.support.servers.hosts import Hosts
from tests.support.servers.wiretap import Wiretap

pytestmark = NEEDS_HOSTS

ROWS: Final = 2_000
CANARY: Final = "canary-in-the-rows"
SAY: Final = """
import socket, sys
socket.create_connection((sys.argv[1], int(sys.argv[2])), 60).sendall(sys.argv[3].encode())
"""


def test_workers_of_other_hosts_join_and_exchange_rows_that_nobody_else_reads(tmp_path: Path) -> None:
    write_rows(tmp_path / "files", ROWS, CANARY)
    with (
        Hosts(tmp_path / "hosts", "a", "b", "c") as hosts,
        cluster_on(tmp_path, hosts) as cluster,
        Wiretap(hosts) as tap,
    ):
        url = cluster.master("a").urls[-1]
        assert url.startswith(f"https://{hosts['a'].address}:")
        joins = [cluster.says("a", "cluster", "token") for _ in range(2)]
        cluster.worker("b", url, joins[0])
        cluster.worker("c", url, joins[1])
        client = cluster.says("a", "token", "create", "client", "--scope", "submit")
        assert_is_run_from(cluster, url, client)
        assert_who_has_no_token_is_refused(cluster, url, joins[0])
        between = [flow for flow in tap.flows if {flow.source, flow.target} == of(hosts, "b", "c")]
        assert sum(len(tap.flows[flow]) for flow in between) > ROWS, "the workers exchange rows"
        for word in (CANARY, CODE_CANARY, client, *joins):
            assert tap.seen(word) == []
        assert_is_seen(tap, hosts, CANARY)
    assert_counted(tmp_path / "files" / "out")


def of(hosts: Hosts, *names: str) -> set[str]:
    return {hosts[name].address for name in names}


def assert_is_run_from(cluster: HostedCluster, url: str, token: str) -> None:
    """By who has nothing but a token, which says whose certificates to believe."""
    alone = {"UNISTREAM_HOME": str(cluster.folder / "client"), "UNISTREAM_TOKEN": token}
    run = ("run", "keyed_files:build", "-t", "remote", "-m", url, "-p", "2", "--json")
    ran = cluster.says("c", *run, "-D", "execution.runtime-mode=STREAMING", env=alone)
    assert json.loads(ran)["state"] == "FINISHED"
    [listed] = json.loads(cluster.says("c", "list", "-m", url, "--all", "--json", env=alone))["jobs"]
    assert (listed["job"]["name"], listed["job"]["state"]) == ("unistream job", "FINISHED")
    workers = json.loads(cluster.says("c", "taskmanager", "list", "-m", url, "--json", env=alone))
    assert {one["host"] for one in workers["taskmanagers"]} == {"host-b", "host-c"}


def assert_who_has_no_token_is_refused(cluster: HostedCluster, url: str, used: str) -> None:
    """Or one that another host has used."""
    start = ("taskmanager", "start", "-m", url)
    stranger = {"UNISTREAM_HOME": str(cluster.folder / "stranger")}
    for words, why in [
        ((*start, "--join", used), "was used as often as it may be; make another token with 'unistream clus"),
        (start, "this host has not joined that cluster"),
        (("list", "-m", url), "shows a certificate that is not accepted"),
    ]:
        assert why in cluster.says("c", *words, env=stranger, code=2)
    assert not (cluster.folder / "stranger" / "memberships").exists()


def assert_is_seen(tap: Wiretap, hosts: Hosts, word: str) -> None:
    """What is said in plain text: so nothing was overlooked."""
    listen = "import socket; s = socket.create_server(('0.0.0.0', 5000)); s.accept()[0].recv(100)"
    heard = hosts["c"].start(Path("/dev/null"), sys.executable, "-c", listen)
    say = [sys.executable, "-c", SAY, "host-c", "5000", word]
    eventually(lambda: "Error" not in hosts["b"].run(*say, code=None), "it is said", WAIT_S)
    assert heard.wait(WAIT_S) == 0
    eventually(lambda: bool(tap.seen(word)), "it is seen", WAIT_S)


def assert_counted(table: Path) -> None:
    """Each row once, and of each key all counts."""
    rows = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    assert sorted(row["i"] for row in rows) == list(range(ROWS))
    counts = defaultdict[str, list[int]](list)
    for row in rows:
        counts[row["key"]].append(row["count"])
    assert all(sorted(found) == list(range(1, len(found) + 1)) for found in counts.values())

"""A cluster on several hosts is attacked from another one, and by another user: nothing is run or shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tests.eventually import WAIT_S, eventually
from tests.integration.on_hosts import NEEDS_HOSTS, HostedCluster, cluster_on
from tests.integration.several_masters import is_running
from tests.support.servers.hosts import OWN_TMP, Hosts
from unistream.base.clock import SystemClock
from unistream.base.ids import AttemptId, JobId
from unistream.client.remote.address import FixedAddress
from unistream.client.remote.rest_client import RestClient
from unistream.client.remote.tokens import TokensClient
from unistream.model.access import Scope
from unistream.model.job_info import JobInfo

pytestmark = NEEDS_HOSTS

OPENAPI: Final = Path(__file__).parents[2] / "ui" / "openapi.json"
OPEN: Final = {"POST /unistream/login", "GET /unistream/certificates/authorities"}
JOIN: Final = "POST /unistream/workers"
LISTEN: Final = """
import pathlib
for name in ("tcp", "tcp6"):
    for line in pathlib.Path("/proc/self/net/" + name).read_text().splitlines()[1:]:
        local, state = line.split()[1], line.split()[3]
        if state == "0A":
            print(int(local.rpartition(":")[2], 16))
"""
SOCKETS: Final = """
import os, pathlib, socket, sys
found = [str(path / "flight.sock") for path in pathlib.Path(sys.argv[1]).glob("unistream-flight-*")]
os.setgroups([])
os.setuid(65534)
for path in found:
    try:
        socket.socket(socket.AF_UNIX).connect(path)
        print("reached")
    except PermissionError:
        print("refused")
"""
SECOND_MS: Final = 1000


class Attacked:
    """A cluster with two workers and a job, and a host that is none of its own. `owner`: as an admin."""

    def __init__(self, cluster: HostedCluster, owner: RestClient, url: str, job: JobId) -> None:
        self.cluster, self.owner, self.url, self.job = cluster, owner, url, job
        self.tokens = TokensClient(owner)

    def info(self) -> JobInfo:
        return self.owner.info(self.job)

    def attack(self, what: str, at: str = "x", **arguments: Any) -> Any:
        """What comes of it."""
        host = self.cluster.hosts[at]
        program = (
            "import json, sys; from tests.integration.hosts_attacker import ATTACKS; "
            "json.dump(ATTACKS[sys.argv[1]](**json.loads(sys.argv[2])), sys.stdout)"
        )
        env = {**self.cluster.env(host), "UNISTREAM_HOME": str(self.cluster.folder / "stranger")}
        return json.loads(host.run(sys.executable, "-c", program, what, json.dumps(arguments), env=env))

    def operations(self) -> list[list[str]]:
        """All of the API."""
        paths: Mapping[str, Mapping[str, Any]] = json.loads(OPENAPI.read_text())["paths"]
        return [
            [method.upper(), self._filled(path)]
            for path, methods in paths.items()
            for method in methods
            if method in {"get", "post", "put", "patch", "delete"}
        ]

    def _filled(self, path: str) -> str:
        for name in ("{id_}", "{job}"):
            path = path.replace(name, self.job)
        return "/".join("1" if part.startswith("{") else part for part in path.split("/"))


@contextmanager
def attacked(folder: Path) -> Iterator[Attacked]:
    with Hosts(folder / "hosts", "a", "b", "c", "x") as hosts, cluster_on(folder, hosts) as cluster:
        url = cluster.master("a").urls[-1]
        token = cluster.says("a", "cluster", "token", "--uses", "2")
        for name in ("b", "c"):
            cluster.worker(name, url, token)
        run = ("run", "keyed_files:endless", "-t", "remote", "-p", "2", "--detached", "--json")
        job = JobId(json.loads(cluster.says("a", *run))["job"])
        admin = cluster.says("a", "token", "create", "owner", "--scope", "admin")
        with hosts.inside(), RestClient(FixedAddress(url), timeout_s=WAIT_S, token=admin) as owner:
            eventually(lambda: is_running(owner.info(job)), "it runs", WAIT_S, 0.5)
            yield Attacked(cluster, owner, url, job)


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    with attacked(tmp_path_factory.mktemp("attacked")) as victim:
        yield victim


@pytest.fixture(autouse=True)
def nothing_has_changed(victim: Attacked) -> Iterator[None]:
    """Whatever the attack was."""
    before = seen(victim)
    yield
    assert seen(victim) == before


def seen(victim: Attacked) -> Any:
    info = victim.info()
    workers = sorted(worker.id for worker in victim.owner.task_managers())
    return info.state, info.restarts, info.sinks, workers, [one.job for one in victim.owner.jobs()]


@pytest.mark.parametrize("token", ["", "unistream_", "unistream_000000000000_00", "basic"])
def test_who_has_no_token_asks_for_nothing(victim: Attacked, token: str) -> None:
    operations = victim.operations()
    found = victim.attack("rest", url=victim.url, operations=operations, token=token, as_nobody=False)
    assert len(found) == len({tuple(one) for one in operations}) > 60
    assert {what for what, status in found.items() if status != 401} == OPEN


def test_another_user_of_the_machine_asks_for_nothing(victim: Attacked) -> None:
    operations = victim.operations()
    found = victim.attack("rest", "a", url=victim.url, operations=operations, token="", as_nobody=True)
    assert {what for what, status in found.items() if status != 401} == OPEN


@pytest.mark.parametrize("at", ["a", "b", "c"])
def test_another_user_of_a_host_reaches_no_socket(victim: Attacked, at: str) -> None:
    said = victim.cluster.hosts[at].python(SOCKETS, OWN_TMP).split()
    assert set(said) == {"refused"}


def test_a_token_of_hosts_asks_for_nothing_else(victim: Attacked) -> None:
    made = victim.tokens.create("hosts", Scope.JOIN, uses=1)
    operations = victim.operations()
    found = victim.attack("rest", url=victim.url, operations=operations, token=made.token, as_nobody=False)
    assert {what for what, status in found.items() if status not in {401, 403}} == OPEN | {JOIN}


def test_a_port_takes_no_call_of_who_shows_nothing(victim: Attacked, tmp_path: Path) -> None:
    hosts = victim.cluster.hosts
    places = [
        f"{hosts[name].address}:{port}"
        for name in "abc"
        for port in sorted(set(hosts[name].python(LISTEN).split()))
    ]
    assert len(places) >= 4, "the REST API, the JobManager and two workers"
    canary = tmp_path / "was run"
    assert victim.attack("ports", places=places, canary=str(canary), calls_s=5) == []
    assert not canary.exists()


def test_a_token_that_does_not_count_lets_nobody_join(victim: Attacked) -> None:
    def join(name: str, lasts_ms: int | None = None) -> str:
        return victim.tokens.create(name, Scope.JOIN, lasts_ms, uses=1).token

    expired, revoked, good = join("expired", SECOND_MS), join("revoked"), join("good")
    begin_ms = SystemClock().wall_ms()
    victim.tokens.revoke("revoked")
    parts = good.split("_")
    secret, authority = ("_".join([*parts[:n], "0" * len(parts[n]), *parts[n + 1 :]]) for n in (2, 3))
    eventually(lambda: SystemClock().wall_ms() > begin_ms + SECOND_MS, "one has expired", WAIT_S)
    tokens = {
        "good": good,
        "used": good,
        "expired": expired,
        "revoked": revoked,
        "truncated": good[:-1],
        "cut off": good.rpartition("_")[0],
        "with another secret": secret,
        "of another authority": authority,
        "of a reader": victim.tokens.create("reader", Scope.READ).token,
        "of none": "let me in",
        "good again": join("good again"),
    }
    refused = victim.attack("joins", url=victim.url, tokens=tokens)
    assert [name for name, why in refused.items() if not why] == ["good", "good again"]
    assert "is not the cluster of this token" in refused["of another authority"]
    for name in ("used", "expired", "revoked"):
        assert "make another token with 'unistream cluster token' there" in refused[name]


def test_a_worker_speaks_for_itself_alone(victim: Attacked) -> None:
    """It has joined, and has a certificate of the cluster: it is no other worker, and not the JobManager."""
    token = victim.tokens.create("hosts", Scope.JOIN, uses=1).token
    task = victim.info().subtasks[0]
    worker = next(one for one in victim.owner.task_managers() if one.id == task.task_manager)
    answers = victim.attack(
        "member",
        url=victim.url,
        token=token,
        worker=worker.id,
        address=worker.address,
        attempt=msgspec.to_builtins(AttemptId(victim.job, task.vertex, task.index, task.attempt)),
    )
    for kind in ("Heartbeat", "RegisterTaskManager"):
        assert f"is not that of {worker.id}" in answers[kind]
    assert "was not given to tm-host-x" in answers["TaskStateChanged"]
    assert f"has no task of job {victim.job}" in answers["FetchArtifact"]
    for kind in ("CancelTask", "ReleaseTaskManager"):
        assert f"is not the JobManager of {worker.id}" in answers[kind]

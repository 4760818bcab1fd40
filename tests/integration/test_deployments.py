"""What `deployments` has is started as it stands there: commands, configuration, variables and scripts of the
Compose cluster, as processes on hosts that are network namespaces; units of systemd are read by it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from deltalake import DeltaTable

from tests.eventually import WAIT_S, eventually
from tests.integration.on_hosts import NEEDS_HOSTS, PIPELINES
from tests.integration.pipelines.keyed_files import write_rows
from tests.integration.several_masters import Program
from tests.support.servers.ensemble import Place, ZooKeeperEnsemble
from tests.support.servers.hosts import Host, Hosts

ROOT: Final = Path(__file__).resolve().parents[2]
CLUSTER: Final = ROOT / "deployments" / "compose" / "cluster"
UNITS: Final = sorted((ROOT / "deployments" / "systemd").glob("*.service"))
AT: Final = {"master-a": "a", "master-b": "b", "worker-1": "c", "worker-2": "b", "client": "c"}
PROGRAM: Final = "/opt/unistream/bin/unistream"
OUR_PROGRAM: Final = [sys.executable, "-m", "unistream.cli.main"]
ROWS: Final = 500


def services() -> dict[str, Any]:
    made = yaml.safe_load((CLUSTER / "compose.yaml").read_text("utf-8"))
    return dict(made["services"])


class DeployedCluster:
    """The containers of unistream in `compose.yaml`, as processes; their places are in `folder`."""

    def __init__(self, folder: Path, hosts: Hosts, quorum: str) -> None:
        self.folder, self.hosts = folder, hosts
        self.services = services()
        self.copy = folder / "cluster"
        shutil.copytree(CLUSTER, self.copy)
        subprocess.run([self.copy / "secrets.sh"], check=True, timeout=WAIT_S)
        with (folder / "hosts" / "names").open("a", encoding="utf-8") as names:
            for service, host in AT.items():
                names.write(f"{hosts[host].address} {service}\n")
        text = (CLUSTER / "config.yaml").read_text("utf-8")
        servers = "zookeeper-1:2181,zookeeper-2:2181,zookeeper-3:2181"
        database = "postgresql+psycopg://unistream:${file:/run/secrets/postgres-password}@postgres/unistream"
        assert servers in text
        assert database in text
        text = text.replace(servers, quorum).replace(database, f"sqlite:///{folder}/metadata.db")
        (folder / "conf").mkdir()
        (folder / "conf" / "config.yaml").write_text(self.placed(text, ""), encoding="utf-8")
        self.programs: dict[str, Program] = {}

    def placed(self, text: str, service: str) -> str:
        for place, here in (
            ("/run/secrets", self.copy / "secrets"),
            ("/var/lib/unistream-shared", self.folder / "shared"),
            ("/var/lib/unistream", self.folder / f"own-{service}"),
        ):
            text = text.replace(place, str(here))
        return text

    def env(self, service: str) -> dict[str, str]:
        own = {key: self.placed(value, service) for key, value in self._said(service).items()}
        path = os.pathsep.join([str(PIPELINES), os.environ.get("PYTHONPATH", "")])
        return own | {
            "UNISTREAM_HOME": str(self.folder / f"own-{service}" / "home"),
            "UNISTREAM_CONF_DIR": str(self.folder / "conf"),
            "PYTHONPATH": path,
            "KEYED_FILES": str(self.folder / "files"),
        }

    def _said(self, service: str) -> dict[str, str]:
        return dict(self.services[service].get("environment", {}))

    def host(self, service: str) -> Host:
        return self.hosts[AT[service]]

    def start(self, service: str) -> Program:
        words = [self.placed(word, service) for word in self.services[service]["command"]]
        made = Program(self.folder, service, words, self.env(service), self.host(service).wrapper)
        self.programs[service] = made
        return made

    def is_healthy(self, service: str) -> bool:
        kind, python, *words = self.services[service]["healthcheck"]["test"]
        assert (kind, python) == ("CMD", "/opt/unistream/bin/python")
        return "Error" not in self.host(service).run(sys.executable, *words, code=None)

    def docker(self) -> Path:
        """A folder with a `docker` that knows `compose exec` alone."""
        folder = self.folder / "bin"
        folder.mkdir()
        cases = [
            f'{name}) exec {shlex.join(self._command(name))} "$@";;' for name in ("master-a", "master-b")
        ]
        lines = [
            "#!/bin/sh",
            f'[ "$1 $2 $3 $5" = "compose exec -T {PROGRAM}" ] || exit 9',
            "service=$4; shift 5",
            'case "$service" in',
            *cases,
            "esac",
            "exit 9",
        ]
        path = folder / "docker"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        path.chmod(0o755)
        return folder

    def _command(self, service: str) -> list[str]:
        pairs = [f"{key}={value}" for key, value in self.env(service).items()]
        return [*self.host(service).wrapper, "env", *pairs, *OUR_PROGRAM]

    def tokens(self) -> subprocess.CompletedProcess[str]:
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            [self.copy / "tokens.sh"],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_S,
        )

    def client(self, *words: str) -> str:
        return self.host("client").run(*OUR_PROGRAM, *words, env=self.env("client"))

    def clear(self) -> None:
        for program in self.programs.values():
            program.clear()


@NEEDS_HOSTS
def test_the_compose_cluster_runs_a_job_and_outlives_its_leader(tmp_path: Path) -> None:
    write_rows(tmp_path / "files", ROWS, "a row")
    with Hosts(tmp_path / "hosts", "a", "b", "c") as hosts, hosts.inside():
        places = [Place(hosts["c"].address, hosts["c"].wrapper)]
        with ZooKeeperEnsemble(tmp_path / "zk", places=places) as ensemble:
            cluster = DeployedCluster(tmp_path, hosts, ensemble.address)
            cluster.docker()
            try:
                assert_it_is_usable(cluster)
            finally:
                cluster.clear()


def assert_it_is_usable(cluster: DeployedCluster) -> None:
    too_early = cluster.tokens()
    assert too_early.returncode == 1
    assert "no master leads yet" in too_early.stderr
    assert (cluster.copy / "secrets" / "join-token").read_text() == ""
    masters = ("master-a", "master-b")
    first = cluster.start("master-a")
    eventually(lambda: cluster.is_healthy("master-a"), f"the first answers: {first.err}", WAIT_S, 1.0)
    cluster.start("master-b")
    eventually(lambda: cluster.is_healthy("master-b"), "a standby answers", WAIT_S, 1.0)
    eventually(lambda: cluster.tokens().returncode == 0, "tokens are made", WAIT_S, 1.0)
    workers = [cluster.start(name) for name in ("worker-1", "worker-2")]
    found = Counter(worker["host"] for worker in eventually_workers(cluster, len(workers)))
    assert found == {"host-c": 1, "host-b": 1}
    ran = cluster.client(
        "run",
        "keyed_files:build",
        "-t",
        "remote",
        "-p",
        "2",
        "--json",
        "-D",
        "execution.runtime-mode=STREAMING",
    )
    assert json.loads(ran)["state"] == "FINISHED"
    rows = DeltaTable(str(cluster.folder / "files" / "out")).to_pyarrow_table().to_pylist()
    assert sorted(row["i"] for row in rows) == list(range(ROWS))
    assert cluster.programs[masters[0]].end(signal.SIGTERM) == 0
    eventually(lambda: len(eventually_workers(cluster, 2)) == 2, "workers go to the other master", WAIT_S)
    [listed] = json.loads(cluster.client("list", "--all", "--json"))["jobs"]
    assert listed["job"]["state"] == "FINISHED"


def eventually_workers(cluster: DeployedCluster, count: int) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []

    def are_there() -> bool:
        seen[:] = json.loads(cluster.client("taskmanager", "list", "--json"))["taskmanagers"]
        return len(seen) == count

    said = {name: program.err for name, program in cluster.programs.items()}
    eventually(are_there, f"{count} workers are registered: {said}", WAIT_S, 1.0)
    return seen


def test_containers_have_no_password_of_their_own_and_no_rights() -> None:
    for name, service in services().items():
        environment = service.get("environment", {})
        for key, value in environment.items():
            assert "PASSWORD" not in key or str(value).startswith("/run/secrets/"), (name, key)
        ports = [str(port) for port in service.get("ports", [])]
        assert all(port.startswith("127.0.0.1:") for port in ports), name
        if name in AT:
            assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])


@pytest.mark.parametrize("file", [CLUSTER / "config.yaml", ROOT / "deployments" / "systemd" / "config.yaml"])
def test_configurations_have_known_options_alone(file: Path, tmp_path: Path) -> None:
    env = {"ZOOKEEPER_PASSWORD": "z", "POSTGRES_PASSWORD": "p", "UNISTREAM_HOME": str(tmp_path)}
    text = file.read_text("utf-8").replace("/run/secrets", str(tmp_path))
    for name in ("zookeeper-password", "postgres-password"):
        (tmp_path / name).write_text("secret")
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [*OUR_PROGRAM, "config", "check", str(tmp_path / "config.yaml")],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_systemd_understands_the_units(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text("utf-8")
    [command] = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    program, *words = shlex.split(command.removeprefix("ExecStart="))
    assert program == PROGRAM
    usage = subprocess.run(
        [*OUR_PROGRAM, *words[:2], "--help"], capture_output=True, text=True, check=True, timeout=WAIT_S
    )
    assert [word for word in words if word.startswith("--") and word not in usage.stdout] == []
    if shutil.which("systemd-analyze") is None:
        return
    copy = tmp_path / unit.name
    copy.write_text(text.replace(PROGRAM, sys.executable), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False, timeout=WAIT_S
    )
    assert (done.returncode, done.stderr) == (0, "")

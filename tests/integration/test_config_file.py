"""config.yaml and variables of the environment, with real clusters, jobs and Dagster runs."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import httpx
import psutil
import pytest

import unistream as us
from tests.eventually import WAIT_S
from tests.integration.crash_runs import Command, await_info, commands_in
from tests.postgres import PostgresServer
from unistream.base.config_file import variable_of
from unistream.base.ids import JobId
from unistream.client.remote.rest_client import RestClient
from unistream.dagster import SinkTranslatorData, UnistreamResource, UnistreamTranslator, unistream_assets
from unistream.rest.openapi import OPERATIONS

CANARY = "hunter2-canary"
PIPELINES = """
import unistream as us

def numbers(env, **options):
    source = us.DatagenSource({"n": us.datagen.Sequential()}, **options)
    return env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")

def endless(env):
    numbers(env, rows=None, bounded=False, rows_per_second=100).sink_to(us.BlackholeSink()).uid("out")

def short(env):
    numbers(env, rows=100).sink_to(us.BlackholeSink()).uid("out")

def failing(env):
    def explode(batch):
        raise ValueError("no such flight")
    numbers(env, rows=100).map_batches(explode).uid("explode").sink_to(us.BlackholeSink()).uid("out")
"""
PROGRAM = """
import config_pipelines, unistream as us
env = us.Environment({"restart-strategy.type": "none"}, target="local")
config_pipelines.short(env)
print(env.execute("program").state)
"""
Start = Callable[..., Command]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    (tmp_path / "config_pipelines.py").write_text(PIPELINES)
    with commands_in(tmp_path) as start:
        yield start


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.yaml"
    path.write_text(text)
    path.chmod(0o600)
    return path


def begin(start: Start, *words: str, **more: Any) -> tuple[Command, str]:
    """A session cluster, and where it is."""
    cluster = start("cluster", "start", "-t", "local", "--json", *words, **more)
    line = cluster.line()
    assert line, cluster.wait() or cluster.err
    return cluster, json.loads(line)["url"]


def ran(command: Command, code: int = 0) -> str:
    assert command.wait() == code, command.err
    return str(command.out + command.err)


def seen(url: str, path: str) -> Any:
    return httpx.get(f"{url}/v1{path}", trust_env=False, timeout=WAIT_S).json()


FILE = """\
execution:
  checkpointing:
    interval: 200 ms
  runtime-mode: STREAMING
rest.port: {port}
high-availability.cluster-id: main
taskmanager:
  numberOfTaskSlots: 2
"""


def test_one_file_for_a_cluster_its_clients_and_jobs(start: Start, tmp_path: Path) -> None:
    port = free_port()
    write(tmp_path / "home", FILE.format(port=port))
    cluster, url = begin(start)
    assert url == f"http://127.0.0.1:{port}"
    submitted = ran(start("run", "config_pipelines:endless", "-t", "remote", "-d", "--json"))
    job = JobId(json.loads(submitted)["job"])
    with RestClient(url) as client:
        info = await_info(client, job, lambda info: info.checkpoints_completed >= 2)
    assert seen(url, f"/jobs/{job}/checkpoints/config")["interval"] == 200
    assert info.given == {}, "nothing of a file is kept as given by -D"

    # a cluster for one job does not listen where the session cluster does
    assert "FINISHED" in ran(start("run", "config_pipelines:short", "-t", "local"))
    assert "FINISHED" in ran(start(program=("-c", PROGRAM)))

    # a second session cluster says what it has in common with the first
    assert "the cluster 'main' runs already" in ran(start("cluster", "start", "-t", "local"), 2)
    other = start("cluster", "start", "-t", "local", "-D", "high-availability.cluster-id=b")
    assert f"rest.port {port}: cannot listen on 127.0.0.1" in ran(other, 2)

    # what is given counts first, in a variable and by -D
    variables = {"UNISTREAM_CONF_EXECUTION__CHECKPOINTING__INTERVAL": "300 ms"}
    for defines, interval in ([], 300), (["-D", "execution.checkpointing.interval=400 ms"], 400):
        words = ("run", "config_pipelines:endless", "-t", "remote", "-d", "--json", *defines)
        job = json.loads(ran(start(*words, env=variables)))["job"]
        assert seen(url, f"/jobs/{job}/checkpoints/config")["interval"] == interval
    assert cluster.end(signal.SIGTERM) in (0, 143)


def test_the_cluster_decides_what_is_of_the_cluster(start: Start, tmp_path: Path) -> None:
    write(tmp_path / "of_cluster", "taskmanager.numberOfTaskSlots: 3\nheartbeat.interval: 300 ms\n")
    cluster, url = begin(start, env={"UNISTREAM_CONF_DIR": str(tmp_path / "of_cluster")})
    port = url.rpartition(":")[2]
    of_client = write(
        tmp_path / "of_client",
        f"rest.port: {port}\nheartbeat.interval: 9 s\nmetadata.url: sqlite:////nowhere/m.db\n"
        "s3:\n  endpoint: http://127.0.0.1:1\nparallelism.default: 2\nexecution.runtime-mode: STREAMING\n",
    )
    command = start(
        "--config", str(of_client), "run", "config_pipelines:endless", "-t", "remote", "-d", "--json"
    )
    job = JobId(json.loads(ran(command))["job"])
    with RestClient(url) as client:
        info = await_info(client, job, lambda info: info.state == "RUNNING")
    shown = json.dumps([seen(url, f"/unistream/jobs/{job}"), seen(url, f"/unistream/jobs/{job}/explain")])
    assert len(info.subtasks) == 2, "of the client"
    assert "9 s" not in shown
    assert "nowhere" not in shown
    assert cluster.end(signal.SIGTERM) in (0, 143)


# --- secrets --------------------------------------------------------------------------------------


def everything(url: str, job: str) -> str:
    """Whatever the REST API answers about a job and its cluster."""
    answers = []
    workers = seen(url, "/taskmanagers")["taskmanagers"]
    vertices = seen(url, f"/jobs/{job}")["vertices"]
    names = {"id_": job, "job": job, "vertex": vertices[0]["id"]}
    for operation in OPERATIONS:
        method, path = operation.split()
        if method != "GET" or path.endswith("/events"):  # which goes on
            continue
        of = (
            {**names, "id_": workers[0]["id"]}
            if workers and "/{id_}" in path and "workers" in path
            else names
        )
        if set(re.findall(r"\{(\w+)\}", path)) <= set(of):
            answer = httpx.get(f"{url}/v1{path.format(**of)}", trust_env=False, timeout=WAIT_S)
            answers.append(f"{operation} {answer.status_code} {answer.text}")
    assert len(answers) > 25
    return "\n".join(answers)


def command_lines(cluster: Command) -> str:
    processes = [psutil.Process(cluster.process.pid), *cluster.family()]
    return "\n".join(" ".join(one.cmdline()) for one in processes if one.is_running())


def test_no_secret_of_a_cluster_can_be_seen(start: Start, tmp_path: Path, postgres: PostgresServer) -> None:
    database = postgres.new_database().replace("@127", f":{CANARY}@127")
    secrets = tmp_path / "secret"
    secrets.write_text(f"{CANARY}\n")
    write(
        tmp_path / "home",
        f"metadata.url: {database}\ns3:\n  access-key: {CANARY}\n  secret-key: ${{file:{secrets}}}\n"
        "execution:\n  runtime-mode: STREAMING\n  checkpointing.interval: 200 ms\n",
    )
    variables = {
        variable_of("high-availability.zookeeper.client.authorization"): f"digest:u:{CANARY}",
        variable_of("spark.ssl.keyPassword"): CANARY,
    }
    cluster, url = begin(start, "-v", env=variables)
    lines = [json.dumps(seen(url, "/unistream/cluster"))]
    for name in ("endless", "failing"):
        words = ("run", f"config_pipelines:{name}", "-t", "remote", "-d", "--json", "--name", name)
        command = start(*words, "-D", "restart-strategy.type=none", env=variables)
        job = JobId(json.loads(ran(command))["job"])
        with RestClient(url) as client:
            await_info(client, job, lambda info: info.checkpoints_completed >= 1 or info.is_terminal)
        lines.append(everything(url, job))
        for look in ("info", "exceptions", "logs", "checkpoints"):
            lines += [ran(start(look, job)), ran(start(look, job, "--json"))]
    lines += [ran(start("config", "show", "--all", env=variables)), ran(start("db", "check"))]
    lines += [ran(start("upgrade", "endless", "config_pipelines:endless", "-p", "2"))]
    lines.append(command_lines(cluster))
    assert cluster.end(signal.SIGTERM) in (0, 143)
    lines += [cluster.out, cluster.err]
    logs = [path for path in (tmp_path / "home").rglob("*") if path.is_file() and "log" in str(path)]
    lines += [path.read_text(errors="replace") for path in logs]
    text = "\n".join(lines)
    for key in ("s3.secret-key", "high-availability.zookeeper.client.authorization", "spark.ssl.keyPassword"):
        assert key in text, "it is shown that it is set"
    assert CANARY not in text


class _Rows(UnistreamTranslator):
    def get_asset_spec(self, data: SinkTranslatorData) -> dg.AssetSpec:
        return super().get_asset_spec(data).replace_attributes(key=dg.AssetKey("rows"))


def test_a_dagster_run_has_the_file_below_its_own_config_and_shows_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(variable_of("s3.access-key"), CANARY)
    monkeypatch.setenv(variable_of("s3.secret-key"), CANARY)
    write(
        tmp_path / "home",
        "execution.runtime-mode: STREAMING\nexecution.checkpointing:\n  interval: 150 ms\n  num-retained: 2\n"
        "  externalized-checkpoint-retention: DELETE_ON_CANCELLATION\n"
        "restart-strategy.type: none\nrest.port: 1\n",
    )
    found: list[dict[str, str]] = []

    def build(env: us.Environment) -> None:
        source = us.DatagenSource({"n": us.datagen.Sequential()}, rows=2000, rows_per_second=1000)
        rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        rows.sink_to(us.FileSink(str(tmp_path / "rows"))).uid("out")
        found.append(env.config.to_dict())

    @unistream_assets(build, name="rows", translator=_Rows())
    def rows(context, unistream: UnistreamResource):
        yield from unistream.run(context, build)

    resource = UnistreamResource(target="local", config={"execution.checkpointing.num-retained": "3"})
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([rows], resources={"unistream": resource}, instance=instance)
        assert result.success
        run = instance.get_run_by_id(result.run_id)
        stored = instance.all_logs(result.run_id)
        [event] = result.get_asset_materialization_events()
    options = found[-1]
    assert options["execution.checkpointing.interval"] == "150 ms", "of the file"
    assert options["execution.checkpointing.num-retained"] == "3", "of the resource"
    assert options["execution.checkpointing.externalized-checkpoint-retention"] == "DELETE_ON_CANCELLATION"
    assert "rest.port" not in options, "it is of the session cluster"
    metadata = event.materialization.metadata
    assert int(str(metadata["unistream/checkpoints"].value)) >= 2
    out, err = capfd.readouterr()
    shown = "\n".join([str(run), *map(str, stored), str(metadata), repr(resource), out, err])
    assert CANARY not in shown
    assert os.environ[variable_of("s3.secret-key")] == CANARY
